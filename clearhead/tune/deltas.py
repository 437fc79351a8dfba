"""Operations on the differences that merging works with: tensors in float64 in, one or some of them out.

A difference (delta) is what fine-tuning added to a parameter: its value less that of the base. A parameter
comes in pieces, so that a large one is never in memory as a whole in float64, nor that of several models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

Majority = Literal["sum", "count"]
Average = Literal["weights", "count", "none"]
# From the first piece to the last, as often as it is called: the same piece of every model.
Pieces = Callable[[], Iterator[Sequence[Tensor]]]

# Slerp is linear interpolation where the cosine is larger, because the sine of the angle is too small.
NEARLY_PARALLEL = 0.9995
SMALLEST_LENGTH = 1e-8  # of a vector that has a direction


def weighted_sum(coefficients: Sequence[float], tensors: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for coefficient, x in zip(coefficients, tensors, strict=True):
        total.add_(x, alpha=coefficient)
    return total


def count_conflicts(deltas: Sequence[Tensor]) -> int:
    """At how many places some of the deltas are positive and others negative."""
    up, down = deltas[0] > 0, deltas[0] < 0
    for x in deltas[1:]:
        up |= x > 0
        down |= x < 0
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
    votes = [weight if is_weighted else 1.0 for weight in weights]
    result = torch.zeros_like(deltas[0])
    for vote, x in zip(votes, deltas, strict=True):
        result += (vote * x).sign() if majority == "count" else vote * x
    elected = torch.where(result >= 0, 1.0, -1.0).to(result)
    total, divisor = torch.zeros_like(result), torch.zeros_like(result)
    for weight, vote, x in zip(weights, votes, deltas, strict=True):
        agrees = (vote * x).sign() == elected
        total += weight * x * agrees
        divisor += agrees * (abs(weight) if average == "weights" else 1.0)
    return total if average == "none" else total / divisor.masked_fill_(divisor == 0, 1.0)


def slerp_coefficients(pieces: Pieces, t: float) -> tuple[float, float]:
    """Factors of two tensors on the arc between their directions (Shoemake 1985); each keeps its length."""
    squares, product = [0.0, 0.0], 0.0
    for one, two in pieces():
        squares = [squares[0] + float(one.square().sum()), squares[1] + float(two.square().sum())]
        product += float((one * two).sum())
    lengths = [square**0.5 if square**0.5 > SMALLEST_LENGTH else 1.0 for square in squares]
    cosine = torch.tensor(product / lengths[0] / lengths[1], dtype=torch.float64).clamp(-1, 1)
    if cosine.abs() > NEARLY_PARALLEL:
        return 1 - t, t
    angle = torch.acos(cosine)
    return float(torch.sin((1 - t) * angle) / angle.sin()), float(torch.sin(t * angle) / angle.sin())
