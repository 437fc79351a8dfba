"""Filters: scores of the next token and what was said in, scores out; what may not be said is at -inf.

Filters come before the choice and are applied in the order given. Those that shape a draw (temperature, top-k
and their kin) are in `shaping.py`.
Shape suffixes: R rows, V vocabulary, T tokens so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .said import Said

BLOCKED = float("-inf")


class Filter:
    """One rule about what comes next: `filter(scores_RV, said)`. It never changes what it is given."""

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Repetition(Filter):
    """What was said before, prompt included, becomes less likely by a factor (Keskar 2019)."""

    penalty: float

    def __post_init__(self) -> None:
        if self.penalty <= 0:
            raise InputError(
                f"repetition_penalty is {self.penalty}, expected a number above 0; 1 is no penalty"
            )

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        lower = torch.where(scores_RV < 0, scores_RV * self.penalty, scores_RV / self.penalty)
        return torch.where(counts(said.ids_RT, said.real_RT, scores_RV) > 0, lower, scores_RV)


@dataclass(frozen=True)
class Frequency(Filter):
    """Minus `each` for every time a token was said, and minus `once` if it was said at all (OpenAI's two).

    Only what is new counts, not the prompt.
    """

    each: float = 0.0
    once: float = 0.0

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        count = counts(said.new_RN, None, scores_RV)
        return scores_RV - self.each * count - self.once * (count > 0)


@dataclass(frozen=True)
class NoRepeatNgram(Filter):
    """No `size` tokens in a row are said twice."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"no_repeat_ngram_size is {self.size}, expected 1 or more")

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        ids, size = said.ids_RT, self.size
        if ids.shape[1] < size:
            return scores_RV
        grams_RWN = ids.unfold(1, size, 1)
        seen = said.real_RT.unfold(1, size, 1).all(-1)
        if size > 1:
            seen = seen & (grams_RWN[..., :-1] == ids[:, None, 1 - size :]).all(-1)
        return scores_RV.masked_fill(counts(grams_RWN[..., -1], seen, scores_RV) > 0, BLOCKED)


@dataclass(frozen=True)
class Banned(Filter):
    """Sequences that are never said; one of a single token is never said at all."""

    words: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.words or not all(self.words):
            raise InputError("a banned sequence must have at least one token")

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        blocked = torch.zeros_like(scores_RV, dtype=torch.bool)
        for *before, last in self.words:
            if len(before) > said.length:
                continue
            first = said.length - len(before)
            tail, real = said.ids_RT[:, first:], said.real_RT[:, first:]
            # Padding was not said, even where the token that fills the row up is one of the sequence.
            same = tail == torch.tensor(before, dtype=torch.long, device=tail.device)
            blocked[:, last] |= (same & real).all(1)
        return scores_RV.masked_fill(blocked, BLOCKED)


@dataclass(frozen=True)
class Suppressed(Filter):
    """Tokens that are never said; with `at` only not as new token number `at`, counted from 0."""

    ids: tuple[int, ...]
    at: int | None = None

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        if self.at is not None and said.count != self.at:
            return scores_RV
        return scores_RV.index_fill(1, torch.tensor(self.ids, device=scores_RV.device), BLOCKED)


@dataclass(frozen=True)
class AtLeast(Filter):
    """No end token before `count` new tokens, nor before `total` tokens with the prompt."""

    ends: tuple[int, ...]
    count: int = 0
    total: int = 0

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        if self.total == 0 and said.count >= self.count:
            return scores_RV
        ends = torch.tensor(self.ends, device=scores_RV.device)
        if said.count < self.count:
            return scores_RV.index_fill(1, ends, BLOCKED)
        short_R = said.real_RT.sum(1) < self.total
        # Only the columns of the end tokens are looked at: a row of scores is as long as the vocabulary.
        return scores_RV.index_copy(1, ends, scores_RV[:, ends].masked_fill(short_R[:, None], BLOCKED))


@dataclass(frozen=True)
class Forced(Filter):
    """New token number `at`, counted from 0, is one of these, whatever the model thinks."""

    ids: tuple[int, ...]
    at: int

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        return _only(self.ids, scores_RV) if said.count == self.at else scores_RV


@dataclass(frozen=True)
class ForcedEnd(Filter):
    """The last token there is room for is one of these."""

    ids: tuple[int, ...]

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        last_R = said.left_R == 1
        if not bool(last_R.any()):  # as in every step but the last
            return scores_RV
        return torch.where(last_R[:, None], _only(self.ids, scores_RV), scores_RV)


@dataclass(frozen=True)
class Allowed(Filter):
    """`rule(ids)` says which tokens may follow the ids so far (prompt included, padding left out)."""

    rule: Callable[[list[int]], Sequence[int]]

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        blocked = torch.ones_like(scores_RV, dtype=torch.bool)
        for r, (ids, real) in enumerate(zip(said.ids_RT, said.real_RT, strict=True)):
            blocked[r, list(self.rule(ids[real].tolist()))] = False
        return scores_RV.masked_fill(blocked, BLOCKED)


def _only(ids: tuple[int, ...], scores_RV: Tensor) -> Tensor:
    forced = torch.full_like(scores_RV, BLOCKED)
    forced[:, list(ids)] = 0.0
    return forced


def counts(ids_RT: Tensor, real_RT: Tensor | None, like_RV: Tensor) -> Tensor:
    """How often each row has each token."""
    weight = torch.ones_like(ids_RT) if real_RT is None else real_RT.long()
    return torch.zeros_like(like_RV, dtype=torch.long).scatter_add_(1, ids_RT, weight)
