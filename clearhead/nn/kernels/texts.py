"""Texts: the texts of a padded or packed batch as rows of their own, each from its first token on.

A kernel that cuts a text into parts, or walks through it, must not care where in its row the text stands. The
tokens of every text are taken out, laid to the left, and put back when the work is done:

    . . a b c        a b c .
    d e f g .   ->   d e .       and back; a token of no text comes back as zeros
                     f g .

Shape suffixes: B batch, T tokens, R texts, L tokens of the longest text, ... whatever a token is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..masks import Across
from ..view import View


@dataclass(frozen=True, eq=False)
class Side:
    """Where the tokens of each text stand in the batch: of the queries, or of the keys."""

    shape: tuple[int, int]  # B, T
    at_RL: Tensor  # which of the B * T tokens; any, where a text has ended
    real_RL: Tensor

    def take(self, x_BT: Tensor) -> Tensor:
        """(B, T, ...) -> (R, L, ...), zeros behind the end of a text."""
        taken = x_BT.flatten(0, 1)[self.at_RL]
        ended = ~self.real_RL
        return taken.masked_fill(ended.reshape(*ended.shape, *(1,) * (taken.ndim - 2)), 0.0)

    def put(self, x_RL: Tensor) -> Tensor:
        """(R, L, ...) -> (B, T, ...), zeros where no text is."""
        home = x_RL.new_zeros(self.shape[0] * self.shape[1], *x_RL.shape[2:])
        at = self.at_RL[self.real_RL]
        return home.index_copy(0, at, x_RL[self.real_RL]).reshape(*self.shape, *x_RL.shape[2:])


@dataclass(frozen=True, eq=False)
class Texts:
    queries: Side
    keys: Side
    row_R: Tensor  # the row of the batch that each text came from


def texts(view: View) -> Texts | None:
    """The texts of a call; `None` where every row is one text from end to end."""
    numbers = _numbers(view)
    if numbers is None:
        return None
    most = 1 + max(0, *(int(number.max()) for number in numbers))
    asking_BQ, offered_BK = (_named(number, most) for number in numbers)
    known_R = torch.unique(offered_BK[offered_BK >= 0])
    return Texts(_side(asking_BQ, known_R), _side(offered_BK, known_R), known_R // most)


def _numbers(view: View) -> tuple[Tensor, Tensor] | None:
    """Which text each query and each key is of; below zero = of none."""
    for part in view.mask.parts():
        if isinstance(part, Across):
            return part.query_BQ[:, view.start : view.start + view.queries], part.key_BK
    theirs_BK = view.mask.segments()
    if theirs_BK is None:
        return None
    if view.across:  # padding of the memory says nothing about who asks
        return theirs_BK.new_zeros(len(theirs_BK), view.queries), theirs_BK.clamp(max=0)
    return theirs_BK[:, view.start : view.start + view.queries], theirs_BK


def _named(number_BT: Tensor, most: int) -> Tensor:
    """A name for every text of the batch: texts of different rows have different ones."""
    row_B1 = torch.arange(len(number_BT), device=number_BT.device)[:, None]
    return torch.where(number_BT >= 0, number_BT + most * row_B1, -1)


def _side(name_BT: Tensor, known_R: Tensor) -> Side:
    """Tokens by text, in their order. A query of a text that has no key is of no text: it sees nothing."""
    name, count = name_BT.flatten(), len(known_R)
    text = torch.searchsorted(known_R, name)
    inside = torch.isin(name, known_R)
    token = inside.nonzero()[:, 0]
    order = text[token].argsort(stable=True)
    token, text = token[order], text[token][order]
    size_R = torch.bincount(text, minlength=count)
    place = torch.arange(len(text), device=name.device) - (size_R.cumsum(0) - size_R)[text]
    longest = int(size_R.max()) if count else 0
    at_RL = name.new_zeros(count, longest)
    real_RL = torch.zeros_like(at_RL, dtype=torch.bool)
    at_RL[text, place], real_RL[text, place] = token, True
    return Side((name_BT.shape[0], name_BT.shape[1]), at_RL, real_RL)
