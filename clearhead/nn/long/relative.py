"""Relative waves (Transformer-XL, XLNet): the distance between two tokens as a score of its own.

    score(i, j) = (q_i + u) k_j + (q_i + v) r(i - j)

r is a wave of the distance, projected for each layer; u and v are learned. Only distances matter, so that a
segment may attend to states of an earlier one.
Shape suffixes: B batch, H heads, Q queries, K keys, N distances, D width, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ...errors import SpecError
from ...spec import Dims, Rate
from ..cost import INDEX_BYTES, HiddenShape, PartCost, PositionCost, matmul_cost
from ..layers import Dropout, LinearLayer
from ..position_schemes import Sinusoidal, waves
from ..positions import BoundPositions, Positions, PositionScheme
from ..view import View

WAVES = Sinusoidal(layout="halves")
WAVE_BYTES = 8  # waves are computed in float64
# Whether the first token of a text has distances like any other, or none: pairs with it score zero (Funnel).
FirstToken = Literal["counted", "apart"]


@dataclass(frozen=True, kw_only=True)
class RelativeWaves(Positions):
    """Transformer-XL's positions (Dai 2019), scaled by head_dim ** -0.5, as scores are by default."""

    farthest: int | None = None  # a greater distance counts as this one
    shared: bool = False  # one u and one v for all layers
    dropout: Rate = 0.0  # on the waves
    first: FirstToken = "counted"

    relative: ClassVar[bool] = True

    def check(self) -> None:
        if self.farthest is not None and self.farthest < 1:
            raise SpecError(f"RelativeWaves.farthest is {self.farthest}, expected 1 or more, or None")

    def build(self, dims: Dims, width: int) -> PositionScheme:
        return _RelativeWaves(self, dims)

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        """In each layer: the waves projected, queries against them, and keys against `u`.

        A layer keeps the waves in the precision of the states; queries plus `v`; the projected waves and `u`,
        copied for every row; keys, one for each query head; and the scores of all distances, to pick from.
        """
        inner, pairs = dims.heads * dims.head_dim, 1 if self.shared else dims.depth
        parameters = inner * (dims.depth * dims.width + 2 * pairs)
        n, rows = shape.length, shape.batch * dims.heads
        distances = shape.keys if dims.causal else 2 * shape.keys - 1  # ahead of a decoder there are none
        waves = matmul_cost(1, distances, dims.width, inner)
        waves = replace(waves, backward=waves.flops)  # a wave has no gradient
        scores = matmul_cost(rows, n, dims.head_dim, distances)
        scores += matmul_cost(rows, shape.keys, dims.head_dim, 1)
        vectors = rows * (n + shape.keys + distances + 1) * dims.head_dim
        kept = PartCost(saved=shape.number * (distances * dims.width + vectors + rows * n * distances))
        return PositionCost(
            tower=PartCost(parameters=parameters, saved=INDEX_BYTES * n * shape.keys),
            layer=waves + scores + kept,
            bias="content",
            shared_bias=WAVE_BYTES * dims.width * distances,
        )


class _RelativeWaves(PositionScheme):
    def __init__(self, spec: RelativeWaves, dims: Dims) -> None:
        super().__init__()
        self.spec, self.dims = spec, dims
        pairs = 1 if spec.shared else dims.depth
        size = (dims.heads, dims.head_dim)
        self.u = nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in range(pairs))
        self.v = nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in range(pairs))
        self.project = nn.ModuleList(
            LinearLayer(dims.width, dims.heads * dims.head_dim, bias=False) for _ in range(dims.depth)
        )
        self.dropout = Dropout(spec.dropout)

    def bind(self, view: View) -> BoundPositions:
        apart = (view.q_pos[:, :, None] - view.k_pos[:, None, :]) // view.step
        # A pooled query may stand one step before the first key.
        longest = view.longest if view.step == 1 and not view.is_cross else view.keys + 1
        nearest = 0 if self.dims.causal else 1 - longest  # a decoder does not attend to later tokens
        distance_N = torch.arange(nearest, longest, device=apart.device) * view.step
        if self.spec.farthest is not None:
            distance_N = distance_N.clamp(-self.spec.farthest, self.spec.farthest)
        waves_ND = self.dropout(waves(distance_N, self.dims.width, WAVES))
        counted_BHQK = between_further_tokens(view) if self.spec.first == "apart" else None
        return _BoundWaves(self, waves_ND, (apart - nearest).clamp(min=0)[:, None], counted_BHQK)


def between_further_tokens(view: View) -> Tensor:
    """(1 or B, 1, Q, K) flags of the pairs without the first token of a text, in which it stands alone."""
    return ((view.q_pos > 0)[:, :, None] & (view.k_pos > 0)[:, None, :])[:, None]


class _BoundWaves(BoundPositions):
    def __init__(
        self, scheme: _RelativeWaves, waves_ND: Tensor, index_BHQK: Tensor, counted_BHQK: Tensor | None
    ) -> None:
        self.scheme, self.waves_ND = scheme, waves_ND
        self.index_BHQK, self.counted_BHQK = index_BHQK, counted_BHQK

    def bias(self, layer: int, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        scheme, heads = self.scheme, q_BHQE.shape[1]
        u_HE, v_HE = (pair[layer % len(pair)] for pair in (scheme.u, scheme.v))
        k_BHKE = k_BGKE.repeat_interleave(heads // k_BGKE.shape[1], dim=1)
        wave_NF = scheme.project[layer](self.waves_ND.type_as(q_BHQE))
        wave_HNE = wave_NF.reshape(len(wave_NF), heads, -1).transpose(0, 1)
        far_BHQN = (q_BHQE + v_HE[:, None]) @ wave_HNE.mT
        far_BHQK = far_BHQN.gather(-1, self.index_BHQK.expand(*far_BHQN.shape[:3], -1))
        if self.counted_BHQK is not None:
            far_BHQK = far_BHQK * self.counted_BHQK
        near_BHK = (k_BHKE @ u_HE[..., None]).squeeze(-1)
        bias: Tensor = (far_BHQK + near_BHK[:, :, None]) * scheme.dims.head_dim**-0.5
        return bias
