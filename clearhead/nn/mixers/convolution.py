"""A convolution over tokens (Gehring 2017): each token mixes with its nearest neighbours, through a gate.

A decoder sees earlier tokens only. After d layers of `size` a token depends on d * (size - 1) others: the
path between two tokens grows with their distance; in attention it is one step.
Shape suffixes: R texts, L tokens of the longest text, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import SpecError
from ..attention import TokenMixer
from ..cache import State
from ..cost import HiddenShape, PartCost, PositionCost, linear_cost, matmul_cost
from ..layers import InitDistribution
from .sequential import SequentialMixer, at_end


@dataclass(frozen=True, kw_only=True)
class Convolution(TokenMixer):
    size: int = 3  # kernel size in tokens, the token itself included

    def check(self) -> None:
        if self.size < 1:
            raise SpecError(f"Convolution.size is {self.size}, expected 1 or more tokens")

    def build(self, width: int) -> SequentialMixer:
        return _Convolution(self, width)

    def state(self, width: int) -> int:
        return (self.size - 1) * width

    def cost(self, shape: HiddenShape, *, causal: bool, positions: PositionCost) -> PartCost:
        """The convolution is given a padded copy, kept instead of the input; then the gate."""
        vectors, width = shape.vectors, shape.width
        margin = shape.batch * (self.size - 1)
        cost = matmul_cost(1, vectors, self.size * width, 2 * width)
        cost += linear_cost(vectors, width, width, bias=True)
        cost += PartCost(parameters=2 * width * (self.size * width + 1))
        return cost + PartCost(saved=shape.number * width * (3 * vectors + margin))


class _Conv(nn.Conv1d):
    def __init__(self, width: int, size: int) -> None:
        super().__init__(width, 2 * width, size)
        self.init_distribution = InitDistribution((width * size) ** -0.5)

    def reset_parameters(self) -> None:
        """Left empty on purpose: see layers.py."""


class _Convolution(SequentialMixer):
    def __init__(self, spec: Convolution, width: int) -> None:
        super().__init__(width, width)
        self.conv = _Conv(width, spec.size)
        self.size = spec.size

    def scan(
        self, x_RLD: Tensor, length_R: Tensor | None, state: State | None, *, causal: bool
    ) -> tuple[Tensor, State]:
        back = self.size - 1 if causal else (self.size - 1) // 2
        before = x_RLD.new_zeros(len(x_RLD), back, x_RLD.shape[-1]) if state is None else state[0]
        seen = F.pad(torch.cat([before, x_RLD], dim=1), (0, 0, 0, self.size - 1 - back))
        mixed = F.glu(self.conv(seen.mT).mT, dim=-1)
        ends = (
            x_RLD.new_full((len(x_RLD),), x_RLD.shape[1], dtype=torch.long) if length_R is None else length_R
        )
        return mixed, (at_end(seen, ends, back),)
