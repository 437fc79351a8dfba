"""Parts of differences: pieces of the differences of several models in; what keeps a part of each out.

What keeps a part is called with one piece after the other, from the first to the last, and sets to zero what
it does not keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..nn import generator
from .deltas import Pieces

Sparsify = Callable[[Tensor], Tensor]
Rescale = Literal["density", "l1", "none"]
DIGIT = 16  # bits of a number that one pass of `keep_largest` looks at


def keep_everything(x: Tensor) -> Tensor:
    return x


@dataclass
class KeepLargest:
    """The numbers above a limit in size; of those at the limit the first, until there are enough."""

    limit: float
    at_limit: int

    def __call__(self, x: Tensor) -> Tensor:
        sizes = x.abs()
        equal = sizes == self.limit
        first = equal.flatten().cumsum(0).reshape(x.shape) <= self.at_limit
        self.at_limit = max(0, self.at_limit - int(equal.sum()))
        return x * ((sizes > self.limit) | (equal & first))


def keep_largest(pieces: Pieces, densities: Sequence[float]) -> list[Sparsify]:
    """Of each model the largest numbers by size: `density` of them, rounded down, and at least one.

    The bits of positive floats are in the order of their values. So the limit is found in four passes: by
    counting the first 16 bits of all numbers, then the next 16 of those that have these, and so on.
    """
    limits = [_Limit(density) for density in densities]
    for shift in range(64 - DIGIT, -1, -DIGIT):
        counts = torch.zeros(len(limits), 2**DIGIT, dtype=torch.int64)
        for deltas in pieces():
            for limit, x, digits in zip(limits, deltas, counts, strict=True):
                if limit.density < 1:
                    digits += limit.count_digits(x, shift)
        for limit, digits in zip(limits, counts, strict=True):
            limit.narrow(digits)
    return [limit.keep() for limit in limits]


@dataclass
class _Limit:
    """The limit of one model, of which more bits are known after every pass."""

    density: float
    bits: int = 0  # the first ones
    left: int | None = None  # how many numbers with these bits are kept

    def count_digits(self, x: Tensor, shift: int) -> Tensor:
        """How many numbers have each of the next digits, of those whose bits before are the limit's."""
        bits = x.abs().flatten().view(torch.int64)
        if self.left is not None:
            bits = bits[bits >> shift >> DIGIT == self.bits]
        return torch.bincount((bits >> shift) & (2**DIGIT - 1), minlength=2**DIGIT)

    def narrow(self, digits: Tensor) -> None:
        if self.left is None:
            self.left = max(1, int(self.density * int(digits.sum())))
        from_top = digits.flip(0).cumsum(0)
        place = min(int(torch.searchsorted(from_top, self.left)), 2**DIGIT - 1)
        self.left -= int(from_top[place - 1]) if place else 0
        self.bits = self.bits << DIGIT | (2**DIGIT - 1 - place)

    def keep(self) -> Sparsify:
        if self.density >= 1 or self.left is None:
            return keep_everything
        return KeepLargest(float(torch.tensor([self.bits]).view(torch.float64)), self.left)


def keep_at_random(
    pieces: Pieces, densities: Sequence[float], rescale: Rescale, seed: int, name: str
) -> Sequence[Sparsify]:
    """Of each model every number with a probability, enlarged to make up for the others.

    With `l1` the sum of the sizes stays what it was, which takes a pass over all pieces.
    """
    factors = [1 / density if rescale == "density" else 1.0 for density in densities]
    if rescale == "l1":
        draws = [KeepDrawn(i, density, 1.0, seed, name) for i, density in enumerate(densities)]
        before, after = ([0.0] * len(draws) for _ in range(2))
        for deltas in pieces():
            for i, x in enumerate(deltas):
                before[i] += float(x.abs().sum())
                after[i] += float(draws[i](x).abs().sum())
        factors = [b / a if a else 1.0 for b, a in zip(before, after, strict=True)]
    settings = zip(densities, factors, strict=True)
    return [KeepDrawn(i, density, factor, seed, name) for i, (density, factor) in enumerate(settings)]


@dataclass
class KeepDrawn:
    """What is drawn follows from the seed, the number of the model, the parameter and the piece alone."""

    model: int
    density: float
    factor: float
    seed: int
    name: str
    piece: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        key = generator(self.seed, "merge", self.model, self.name, self.piece)
        self.piece += 1
        return self.factor * x * drawn_mask(x, self.density, key)


def drawn_mask(x: Tensor, density: float, key: torch.Generator) -> Tensor:
    return torch.rand(x.shape, generator=key) < density
