"""Operations on the differences that merging works with: tensors in float64 in, one or some of them out.

A delta is what fine-tuning added to a parameter: its value less that of the base.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Majority = Literal["sum", "count"]
Average = Literal["weights", "count", "none"]
Rescale = Literal["density", "l1", "none"]
# Slerp is linear interpolation where the cosine is larger, because the sine of the angle is too small.
NEARLY_PARALLEL = 0.9995
SMALLEST_LENGTH = 1e-8  # of a vector that has a direction


def weighted_sum(coefficients: Sequence[float], tensors: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for coefficient, x in zip(coefficients, tensors, strict=True):
        total.add_(x, alpha=coefficient)
    return total


def keep_largest(x: Tensor, density: float) -> Tensor:
    """The largest numbers by size, others zero: `density` of them, rounded down, and at least one.

    Of equal ones the first are kept, so that the result is a function of its inputs.
    """
    if density >= 1 or not x.numel():
        return x
    sizes = x.abs().flatten()
    count = max(1, int(density * len(sizes)))
    limit = sizes.kthvalue(len(sizes) - count + 1).values
    larger, equal = sizes > limit, sizes == limit
    kept = larger | (equal & (equal.cumsum(0) <= count - larger.sum()))
    return x * kept.reshape(x.shape)


def drop_at_random(x: Tensor, density: float, key: torch.Generator) -> Tensor:
    """Each number with probability `density`, otherwise zero."""
    return x * (torch.rand(x.shape, generator=key) < density)


def rescaled(kept: Tensor, x: Tensor, density: float, rescale: Rescale) -> Tensor:
    """What is kept of `x`, enlarged to make up for what was dropped."""
    if rescale == "density":
        return kept / density
    before, after = x.abs().sum(), kept.abs().sum()
    if rescale == "none" or not after:
        return kept
    return kept * (before / after)


def count_conflicts(deltas: Sequence[Tensor]) -> int:
    """At how many places some of the deltas are positive and others negative."""
    up = torch.stack([x > 0 for x in deltas]).any(0)
    down = torch.stack([x < 0 for x in deltas]).any(0)
    return int((up & down).sum())


def sum_of_elected(
    deltas: Sequence[Tensor],
    weights: Sequence[float],
    *,
    majority: Majority,
    average: Average,
    is_weighted: bool,
) -> Tensor:
    """At each place only deltas with the elected sign count (TIES): the one that most of them have.

    Without a majority it is plus. `is_weighted` says that the deltas vote with their weights.
    """
    votes = [w * x for w, x in zip(weights, deltas, strict=True)] if is_weighted else list(deltas)
    count = torch.stack([vote.sign() if majority == "count" else vote for vote in votes]).sum(0)
    elected = torch.where(count >= 0, 1.0, -1.0).to(count)
    total, divisor = torch.zeros_like(count), torch.zeros_like(count)
    for weight, x, vote in zip(weights, deltas, votes, strict=True):
        agrees = vote.sign() == elected
        total += weight * x * agrees
        divisor += agrees * (abs(weight) if average == "weights" else 1.0)
    return total if average == "none" else total / divisor.masked_fill_(divisor == 0, 1.0)


def slerp_coefficients(one: Tensor, two: Tensor, t: float) -> tuple[float, float]:
    """Factors of two tensors on the arc between their directions (Shoemake 1985); each keeps its length."""
    lengths = [float(x.norm()) for x in (one, two)]
    lengths = [length if length > SMALLEST_LENGTH else 1.0 for length in lengths]
    cosine = torch.dot((one / lengths[0]).flatten(), (two / lengths[1]).flatten()).clamp(-1, 1)
    if cosine.abs() > NEARLY_PARALLEL:
        return 1 - t, t
    angle = torch.acos(cosine)
    return float(torch.sin((1 - t) * angle) / angle.sin()), float(torch.sin(t * angle) / angle.sin())
