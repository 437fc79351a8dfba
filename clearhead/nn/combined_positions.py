"""Several position schemes at once: each acts where it does alone.

Shape suffixes: B batch, H heads, T tokens, Q queries, K keys, D width, E head width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from torch import Tensor, nn

from ..spec import Dims
from .cost import Bias, HiddenShape, PartCost, PositionCost
from .positions import BoundPositions, Positions, PositionScheme
from .view import View


@dataclass(frozen=True, kw_only=True)
class Combined(Positions):
    """Several schemes at once: MPNet adds learned vectors, and a bias for the distance."""

    schemes: tuple[Positions, ...]

    @property
    def max_length(self) -> int | None:
        return min((s.max_length for s in self.schemes if s.max_length is not None), default=None)

    @property
    def types(self) -> int:  # type: ignore[override]
        return max((scheme.types for scheme in self.schemes), default=0)

    def build(self, dims: Dims, width: int) -> PositionScheme:
        return _Combined(scheme.build(dims, width) for scheme in self.schemes)

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        costs = [scheme.cost(shape, dims) for scheme in self.schemes]
        return PositionCost(
            tower=sum((cost.tower for cost in costs), PartCost()),
            layer=sum((cost.layer for cost in costs), PartCost()),
            bias=max((cost.bias for cost in costs), key=get_args(Bias).index, default="none"),
            shared_bias=sum(cost.shared_bias for cost in costs),
            joined=any(cost.joined for cost in costs),
        )


class _Combined(PositionScheme):
    def __init__(self, schemes: Iterable[PositionScheme]) -> None:
        super().__init__()
        self.schemes = nn.ModuleList(schemes)

    def add(self, x_BTD: Tensor, pos_BT: Tensor) -> Tensor:
        for scheme in self.schemes:
            x_BTD = scheme.add(x_BTD, pos_BT)  # type: ignore[operator]
        return x_BTD

    def bind(self, view: View) -> BoundPositions:
        return _BoundTogether([scheme.bind(view) for scheme in self.schemes])  # type: ignore[operator]


class _BoundTogether(BoundPositions):
    def __init__(self, bound: list[BoundPositions]) -> None:
        self._bound = bound

    def rotate_q(self, q_BHQE: Tensor) -> Tensor:
        for bound in self._bound:
            q_BHQE = bound.rotate_q(q_BHQE)
        return q_BHQE

    def rotate_k(self, k_BHTE: Tensor) -> Tensor:
        for bound in self._bound:
            k_BHTE = bound.rotate_k(k_BHTE)
        return k_BHTE

    def bias(self, layer: int, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor | None:
        added = [bound.bias(layer, q_BHQE, k_BHKE) for bound in self._bound]
        present = [bias for bias in added if bias is not None]
        return sum(present[1:], present[0]) if present else None
