"""Filters that shape a draw: temperature, and rules that leave only the likelier tokens.

Each keeps at least `least` tokens, because something must be said. Shape suffixes: R rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import InputError
from .filters import BLOCKED, Filter
from .said import Said


@dataclass(frozen=True)
class Temperature(Filter):
    """Below 1 the likely becomes likelier, above 1 less so."""

    value: float

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise InputError(
                f"temperature is {self.value}, expected a number above 0; do not sample to get the likeliest"
            )

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        return scores_RV / self.value


@dataclass(frozen=True)
class TopK(Filter):
    """The k likeliest tokens; ties with the last of them stay."""

    k: int
    least: int = 1

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"top_k is {self.k}, expected 1 or more; 0 leaves all tokens")

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        k = min(max(self.k, self.least), scores_RV.shape[-1])
        return scores_RV.masked_fill(scores_RV < scores_RV.topk(k).values[:, -1:], BLOCKED)


@dataclass(frozen=True)
class TopP(Filter):
    """The fewest likeliest tokens that together have a probability of p (Holtzman 2019)."""

    p: float
    least: int = 1

    def __post_init__(self) -> None:
        _share("top_p", self.p)

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        rising, order = scores_RV.sort(descending=False)
        out = rising.softmax(-1).cumsum(-1) <= 1 - self.p
        out[:, -self.least :] = False
        return scores_RV.masked_fill(out.scatter(1, order, out), BLOCKED)


@dataclass(frozen=True)
class MinP(Filter):
    """Tokens at least p times as likely as the likeliest."""

    p: float
    least: int = 1

    def __post_init__(self) -> None:
        _share("min_p", self.p)

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        chance = scores_RV.softmax(-1)
        out = chance < self.p * chance.max(-1, keepdim=True).values
        best = chance.topk(min(self.least, chance.shape[-1])).indices
        return scores_RV.masked_fill(out.scatter(1, best, value=False), BLOCKED)


@dataclass(frozen=True)
class Typical(Filter):
    """Tokens about as surprising as expected, as many as have a probability of p together (Meister 2022)."""

    p: float
    least: int = 1

    def __post_init__(self) -> None:
        _share("typical_p", self.p)

    def __call__(self, scores_RV: Tensor, said: Said) -> Tensor:
        logp = scores_RV.log_softmax(-1)
        entropy = -(logp * logp.exp()).nansum(-1, keepdim=True)
        oddness, order = (-logp - entropy).abs().sort()
        mass = logp.gather(1, order).exp().cumsum(-1)
        last = (mass < self.p).sum(1, keepdim=True).clamp(max=scores_RV.shape[-1] - 1)
        out = oddness > oddness.gather(1, last)
        out[:, : self.least] = False
        return scores_RV.masked_fill(out.scatter(1, order, out), BLOCKED)


def _share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise InputError(f"{name} is {value}, expected a number above 0 and at most 1")
