"""Filters (logits processors): scores of the next token in, scores out; tokens ruled out are at -inf.

Filters run before a token is chosen, in the order given. Those of the second half are for sampling only
(temperature, top-k, top-p, ...); they keep at least `least` tokens, so that one can be chosen.
Shape suffixes: R rows, V vocabulary, T tokens so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .results import TokenBuffer

BLOCKED = float("-inf")


class Filter:
    """One rule about the next token: `filter(scores_RV, tokens)`. It never changes its arguments."""

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Repetition(Filter):
    """Tokens that already occurred, prompt included, become less likely by a factor (Keskar 2019)."""

    penalty: float

    def __post_init__(self) -> None:
        if self.penalty <= 0:
            raise InputError(
                f"repetition_penalty is {self.penalty}, expected a number above 0; 1 is no penalty"
            )

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        lower = torch.where(scores_RV < 0, scores_RV * self.penalty, scores_RV / self.penalty)
        return torch.where(counts(tokens.ids_RT, tokens.real_RT, scores_RV) > 0, lower, scores_RV)


@dataclass(frozen=True)
class Frequency(Filter):
    """OpenAI's two penalties: minus `each` per occurrence of a token, minus `once` if it occurred at all.

    Only new tokens count, not the prompt.
    """

    each: float = 0.0
    once: float = 0.0

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        count = counts(tokens.new_RN, None, scores_RV)
        return scores_RV - self.each * count - self.once * (count > 0)


@dataclass(frozen=True)
class NoRepeatNgram(Filter):
    """No n-gram of `size` tokens occurs twice."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"no_repeat_ngram_size is {self.size}, expected 1 or more")

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        ids, size = tokens.ids_RT, self.size
        if ids.shape[1] < size:
            return scores_RV
        grams_RWN = ids.unfold(1, size, 1)
        seen = tokens.real_RT.unfold(1, size, 1).all(-1)
        if size > 1:
            seen = seen & (grams_RWN[..., :-1] == ids[:, None, 1 - size :]).all(-1)
        return scores_RV.masked_fill(counts(grams_RWN[..., -1], seen, scores_RV) > 0, BLOCKED)


@dataclass(frozen=True)
class Banned(Filter):
    """Sequences that are never generated."""

    words: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.words or not all(self.words):
            raise InputError("a banned sequence must have at least one token")

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        blocked = torch.zeros_like(scores_RV, dtype=torch.bool)
        for *before, last in self.words:
            if len(before) > tokens.length:
                continue
            first = tokens.length - len(before)
            tail, real = tokens.ids_RT[:, first:], tokens.real_RT[:, first:]
            # Padding does not match, even if the padding token is part of the sequence.
            same = tail == torch.tensor(before, dtype=torch.long, device=tail.device)
            blocked[:, last] |= (same & real).all(1)
        return scores_RV.masked_fill(blocked, BLOCKED)


@dataclass(frozen=True)
class Suppressed(Filter):
    """Tokens that are never generated; with `at`, only not as new token number `at`, counted from 0."""

    ids: tuple[int, ...]
    at: int | None = None

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        if self.at is not None and tokens.count != self.at:
            return scores_RV
        return scores_RV.index_fill(1, torch.tensor(self.ids, device=scores_RV.device), BLOCKED)


@dataclass(frozen=True)
class AtLeast(Filter):
    """No end token before `count` new tokens, nor before `total` tokens with the prompt."""

    ends: tuple[int, ...]
    count: int = 0
    total: int = 0

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        if self.total == 0 and tokens.count >= self.count:
            return scores_RV
        ends = torch.tensor(self.ends, device=scores_RV.device)
        if tokens.count < self.count:
            return scores_RV.index_fill(1, ends, BLOCKED)
        short_R = tokens.real_RT.sum(1) < self.total
        # Only the columns of the end tokens are touched: a row of scores is as long as the vocabulary.
        return scores_RV.index_copy(1, ends, scores_RV[:, ends].masked_fill(short_R[:, None], BLOCKED))


@dataclass(frozen=True)
class Forced(Filter):
    """New token number `at`, counted from 0, is one of these, whatever the model predicts."""

    ids: tuple[int, ...]
    at: int

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        return _only(self.ids, scores_RV) if tokens.count == self.at else scores_RV


@dataclass(frozen=True)
class ForcedEnd(Filter):
    """The last token within the length limit is one of these."""

    ids: tuple[int, ...]

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        last_R = tokens.remaining_R == 1
        if not bool(last_R.any()):  # true for every step but the last
            return scores_RV
        return torch.where(last_R[:, None], _only(self.ids, scores_RV), scores_RV)


@dataclass(frozen=True)
class Allowed(Filter):
    """`rule(ids)` returns the tokens that may follow the ids so far (prompt included, padding excluded)."""

    rule: Callable[[list[int]], Sequence[int]]

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        blocked = torch.ones_like(scores_RV, dtype=torch.bool)
        for r, (ids, real) in enumerate(zip(tokens.ids_RT, tokens.real_RT, strict=True)):
            blocked[r, list(self.rule(ids[real].tolist()))] = False
        return scores_RV.masked_fill(blocked, BLOCKED)


def _only(ids: tuple[int, ...], scores_RV: Tensor) -> Tensor:
    forced = torch.full_like(scores_RV, BLOCKED)
    forced[:, list(ids)] = 0.0
    return forced


def counts(ids_RT: Tensor, real_RT: Tensor | None, like_RV: Tensor) -> Tensor:
    """How often each token occurs in each row."""
    weight = torch.ones_like(ids_RT) if real_RT is None else real_RT.long()
    return torch.zeros_like(like_RV, dtype=torch.long).scatter_add_(1, ids_RT, weight)


# --- filters for sampling: temperature, and those that keep only the more likely tokens ---


@dataclass(frozen=True)
class Temperature(Filter):
    """Divides the scores: below 1 sharpens the distribution, above 1 flattens it."""

    value: float

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise InputError(
                f"temperature is {self.value}, expected a number above 0; for greedy decoding do not sample"
            )

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        return scores_RV / self.value


@dataclass(frozen=True)
class TopK(Filter):
    """The k most likely tokens; ties with the last of them stay."""

    k: int
    least: int = 1

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"top_k is {self.k}, expected 1 or more; 0 keeps all tokens")

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        k = min(max(self.k, self.least), scores_RV.shape[-1])
        return scores_RV.masked_fill(scores_RV < scores_RV.topk(k).values[:, -1:], BLOCKED)


@dataclass(frozen=True)
class TopP(Filter):
    """The smallest set of most likely tokens whose probabilities sum to p (Holtzman 2019)."""

    p: float
    least: int = 1

    def __post_init__(self) -> None:
        _check_probability("top_p", self.p)

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        rising, order = scores_RV.sort(descending=False)
        out = rising.softmax(-1).cumsum(-1) <= 1 - self.p
        out[:, -self.least :] = False
        return scores_RV.masked_fill(out.scatter(1, order, out), BLOCKED)


@dataclass(frozen=True)
class MinP(Filter):
    """Tokens at least p times as likely as the most likely one."""

    p: float
    least: int = 1

    def __post_init__(self) -> None:
        _check_probability("min_p", self.p)

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        probs = scores_RV.softmax(-1)
        out = probs < self.p * probs.max(-1, keepdim=True).values
        best = probs.topk(min(self.least, probs.shape[-1])).indices
        return scores_RV.masked_fill(out.scatter(1, best, value=False), BLOCKED)


@dataclass(frozen=True)
class Typical(Filter):
    """Tokens whose surprise is closest to the entropy, up to a total probability of p (Meister 2022)."""

    p: float
    least: int = 1

    def __post_init__(self) -> None:
        _check_probability("typical_p", self.p)

    def __call__(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        logp = scores_RV.log_softmax(-1)
        entropy = -(logp * logp.exp()).nansum(-1, keepdim=True)
        distance, order = (-logp - entropy).abs().sort()
        mass = logp.gather(1, order).exp().cumsum(-1)
        last = (mass < self.p).sum(1, keepdim=True).clamp(max=scores_RV.shape[-1] - 1)
        out = distance > distance.gather(1, last)
        out[:, : self.least] = False
        return scores_RV.masked_fill(out.scatter(1, order, out), BLOCKED)


def _check_probability(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise InputError(f"{name} is {value}, expected a number above 0 and at most 1")
