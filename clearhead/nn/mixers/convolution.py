"""A convolution over tokens (Gehring 2017): each token mixes with its nearest neighbours.

A decoder sees earlier tokens only. After d layers of `size` a token depends on d * (size - 1) others: the
path between two tokens grows with their distance; in attention it is one step.
Shape suffixes: R texts, L tokens of the longest text, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import SpecError
from ...spec import Count
from ..attention import TokenMixer
from ..cache import State
from ..cost import HiddenShape, PartCost, PositionCost, linear_cost, matmul_cost
from ..feedforward import ACTIVATION_SAVES, ACTIVATIONS, Activation
from ..layers import InitDistribution
from .sequential import SequentialMixer, at_end


@dataclass(frozen=True, kw_only=True)
class Convolution(TokenMixer):
    """`act` is "gate" (half of the channels gate the others, and a projection follows) or an activation."""

    size: int = 3  # kernel size in tokens, the token itself included
    act: Literal["gate"] | Activation = "gate"
    groups: Count = 1  # of channels, which do not mix with those of other groups

    def check(self) -> None:
        if self.size < 1:
            raise SpecError(f"Convolution.size is {self.size}, expected 1 or more tokens")

    def build(self, width: int) -> SequentialMixer:
        return _Convolution(self, width)

    def state(self, width: int) -> int:
        return (self.size - 1) * width

    def cost(self, shape: HiddenShape, *, causal: bool, positions: PositionCost) -> PartCost:
        """The convolution is given a padded copy, kept instead of the input; then the gate or activation."""
        vectors, width, inner = shape.vectors, shape.width, self.size * shape.width // self.groups
        margin = shape.batch * (self.size - 1)
        if self.act == "gate":
            outputs, kept = 2 * width, 3  # the output of the convolution, and that of the gate
            cost = linear_cost(vectors, width, width, bias=True)
        else:
            outputs, (besides, output) = width, ACTIVATION_SAVES[self.act]
            cost, kept = PartCost(), besides + output
        product = matmul_cost(1, vectors, inner, outputs)
        # torch counts the gradient of the weights as if all channels mixed.
        cost += replace(product, backward=(1 + self.groups) * product.flops)
        cost += PartCost(parameters=outputs * (inner + 1))
        return cost + PartCost(saved=shape.number * width * (kept * vectors + margin))


class _Conv(nn.Conv1d):
    def __init__(self, spec: Convolution, width: int) -> None:
        if width % spec.groups:
            raise SpecError(f"Convolution.groups is {spec.groups}, which does not divide the width {width}")
        outputs = 2 * width if spec.act == "gate" else width
        super().__init__(width, outputs, spec.size, groups=spec.groups)
        self.init_distribution = InitDistribution((width // spec.groups * spec.size) ** -0.5)

    def reset_parameters(self) -> None:
        """Left empty on purpose: see layers.py."""


class _Convolution(SequentialMixer):
    def __init__(self, spec: Convolution, width: int) -> None:
        super().__init__(width if spec.act == "gate" else None, width)
        self.conv = _Conv(spec, width)
        self.size = spec.size
        self.act = partial(F.glu, dim=-1) if spec.act == "gate" else ACTIVATIONS[spec.act]

    def scan(
        self, x_RLD: Tensor, length_R: Tensor | None, state: State | None, *, causal: bool
    ) -> tuple[Tensor, State]:
        back = self.size - 1 if causal else (self.size - 1) // 2
        before = x_RLD.new_zeros(len(x_RLD), back, x_RLD.shape[-1]) if state is None else state[0]
        seen = F.pad(torch.cat([before, x_RLD], dim=1), (0, 0, 0, self.size - 1 - back))
        mixed = self.act(self.conv(seen.mT).mT)
        ends = (
            x_RLD.new_full((len(x_RLD),), x_RLD.shape[1], dtype=torch.long) if length_R is None else length_R
        )
        return mixed, (at_end(seen, ends, back),)
