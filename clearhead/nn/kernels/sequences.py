"""Sequences: the texts of a padded or packed batch as rows of their own, each from its first token on.

A kernel that cuts a text into parts, or scans it, must not depend on where in its row the text stands. The
tokens of every text are gathered, aligned to the left, and scattered back when the work is done:

    . . a b c        a b c .
    d e f g .   ->   d e .       and back; a token of no text comes back as zeros
                     f g .

Shape suffixes: B batch, T tokens, S sequences, L tokens of the longest, N sequences of one length, H heads,
K keys, E head width, ... whatever a token is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..masks import CrossDocuments
from ..view import View


@dataclass(frozen=True, eq=False)
class SequenceRows:
    """Where the tokens of each sequence stand in the batch: of the queries, or of the keys."""

    shape: tuple[int, int]  # B, T
    at_SL: Tensor  # index into the B * T tokens; any, behind the end of a sequence
    real_SL: Tensor

    @property
    def length_S(self) -> Tensor:
        return self.real_SL.sum(1)

    def take(self, x_BT: Tensor) -> Tensor:
        """(B, T, ...) -> (S, L, ...), zeros behind the end of a sequence."""
        taken = x_BT.flatten(0, 1)[self.at_SL]
        ended = ~self.real_SL
        return taken.masked_fill(ended.reshape(*ended.shape, *(1,) * (taken.ndim - 2)), 0.0)

    def put(self, x_SL: Tensor) -> Tensor:
        """(S, L, ...) -> (B, T, ...), zeros where no sequence is."""
        home = x_SL.new_zeros(self.shape[0] * self.shape[1], *x_SL.shape[2:])
        at = self.at_SL[self.real_SL]
        return home.index_copy(0, at, x_SL[self.real_SL]).reshape(*self.shape, *x_SL.shape[2:])


@dataclass(frozen=True, eq=False)
class Sequences:
    queries: SequenceRows
    keys: SequenceRows
    row_S: Tensor  # the row of the batch that each sequence came from


def sequences(view: View) -> Sequences | None:
    """The sequences of a call; `None` where every row is one sequence from end to end."""
    numbers = _numbers(view)
    if numbers is None:
        return None
    most = 1 + max(0, *(int(number.max()) for number in numbers))
    q_name_BQ, k_name_BK = (_unique_names(number, most) for number in numbers)
    known_S = torch.unique(k_name_BK[k_name_BK >= 0])
    return Sequences(_rows(q_name_BQ, known_S), _rows(k_name_BK, known_S), known_S // most)


def sequence_slots(view: View) -> list[list[Tensor]]:
    """For each row (or once for all of them) the slots of each of its sequences, without padding."""
    found = sequences(view)
    if found is None:
        return [[torch.arange(view.keys, device=view.k_pos.device)]]
    rows: list[list[Tensor]] = [[] for _ in range(view.batch)]
    for row, at_L, real_L in zip(found.row_S.tolist(), found.keys.at_SL, found.keys.real_SL, strict=True):
        rows[row].append(at_L[real_L] - row * view.keys)
    return rows


@dataclass(frozen=True, eq=False)
class EqualLength:
    """All sequences of one length, for kernels whose result depends on the length (hashing into chunks)."""

    row_N: Tensor  # the row that each sequence is in
    slot_NT: Tensor  # and its slots there, padding left out

    def take(self, x_BHKE: Tensor) -> Tensor:
        """(N, H, T, E): the vectors of these sequences."""
        return x_BHKE.transpose(1, 2)[self.row_N[:, None], self.slot_NT].transpose(1, 2)

    def diagonal(self, x_BHQK: Tensor) -> Tensor:
        """(N, H, T, 1): of a square over queries and keys, the entry of each token with itself."""
        diagonal_BHK = x_BHQK.diagonal(dim1=-2, dim2=-1)
        return diagonal_BHK.transpose(1, 2)[self.row_N[:, None], self.slot_NT].transpose(1, 2)[..., None]

    def put(self, x_BHKE: Tensor, made_NHTE: Tensor) -> Tensor:
        """`x` with the vectors of these sequences replaced."""
        rows = self.row_N[:, None].expand_as(self.slot_NT)
        return (
            x_BHKE.transpose(1, 2).index_put((rows, self.slot_NT), made_NHTE.transpose(1, 2)).transpose(1, 2)
        )


def by_length(view: View) -> list[EqualLength]:
    """The sequences of a call, those of one length together."""
    found, device = sequences(view), view.k_pos.device
    if found is None:
        row_N = torch.arange(view.batch, device=device)
        return [EqualLength(row_N, torch.arange(view.keys, device=device).expand(view.batch, -1))]
    slot_SL, length_S = found.keys.at_SL % view.keys, found.keys.length_S
    return [
        EqualLength(found.row_S[length_S == length], slot_SL[length_S == length, :length])
        for length in dict.fromkeys(length_S.tolist())  # in the order in which they first occur
    ]


def _numbers(view: View) -> tuple[Tensor, Tensor] | None:
    """The number of the sequence that each query and each key belongs to; below zero: to none."""
    for part in view.mask.parts():
        if isinstance(part, CrossDocuments):
            return part.query_BQ[:, view.start : view.start + view.queries], part.key_BK
    number_BK = view.mask.segments()
    if number_BK is None:
        return None
    if view.is_cross:  # padding of the encoder output says nothing about the queries
        return number_BK.new_zeros(len(number_BK), view.queries), number_BK.clamp(max=0)
    return number_BK[:, view.start : view.start + view.queries], number_BK


def _unique_names(number_BT: Tensor, most: int) -> Tensor:
    """Numbers that are unique in the batch: sequences of different rows get different ones."""
    row_B1 = torch.arange(len(number_BT), device=number_BT.device)[:, None]
    return torch.where(number_BT >= 0, number_BT + most * row_B1, -1)


def _rows(name_BT: Tensor, known_S: Tensor) -> SequenceRows:
    """Tokens by sequence, in their order. A query whose sequence has no key belongs to none."""
    name, count = name_BT.flatten(), len(known_S)
    number = torch.searchsorted(known_S, name)
    token = torch.isin(name, known_S).nonzero()[:, 0]
    order = number[token].argsort(stable=True)
    token, number = token[order], number[token][order]
    size_S = torch.bincount(number, minlength=count)
    place = torch.arange(len(number), device=name.device) - (size_S.cumsum(0) - size_S)[number]
    longest = int(size_S.max()) if count else 0
    at_SL = name.new_zeros(count, longest)
    real_SL = torch.zeros_like(at_SL, dtype=torch.bool)
    at_SL[number, place], real_SL[number, place] = token, True
    return SequenceRows((name_BT.shape[0], name_BT.shape[1]), at_SL, real_SL)
