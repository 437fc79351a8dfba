"""Relative segment types (XLNet, Funnel): whether two tokens are of the same text, as a score of its own.

    score(i, j) = (q_i + s) e(type_i is type_j)

e has a vector for the same type and one for another, s is learned; each layer has its own.
Shape suffixes: B batch, H heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ...spec import Amount, Count, Dims
from ..positions import BoundPositions, Positions, PositionScheme
from ..view import View
from .relative import FirstToken, between_further_tokens


@dataclass(frozen=True, kw_only=True)
class RelativeTypes(Positions):
    """Funnel's segment types, scaled by head_dim ** -0.5. Without types all tokens are of the same one."""

    types: Count = 3
    neutral: Amount | None = 2  # a type that is the same as every other: that of the first token
    first: FirstToken = "apart"

    relative: ClassVar[bool] = True

    def build(self, dims: Dims, width: int) -> PositionScheme:
        return _RelativeTypes(self, dims)


class _RelativeTypes(PositionScheme):
    def __init__(self, spec: RelativeTypes, dims: Dims) -> None:
        super().__init__()
        self.spec, self.scale = spec, dims.head_dim**-0.5
        size, layers = (dims.heads, dims.head_dim), range(dims.depth)
        self.s = nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in layers)
        # The vector for another type, then the one for the same.
        self.e = nn.ParameterList(nn.Parameter(torch.empty(2, *size)) for _ in layers)

    def bind(self, view: View) -> BoundPositions:
        same_BHQK = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=view.q_pos.device)
        if view.q_types is not None and view.k_types is not None:
            q, k = view.q_types[:, None, :, None], view.k_types[:, None, None, :]
            same_BHQK = q == k
            if self.spec.neutral is not None:
                same_BHQK = same_BHQK | (q == self.spec.neutral) | (k == self.spec.neutral)
        counted_BHQK = between_further_tokens(view) if self.spec.first == "apart" else None
        return _BoundTypes(self, same_BHQK, counted_BHQK)


class _BoundTypes(BoundPositions):
    def __init__(self, scheme: _RelativeTypes, same_BHQK: Tensor, counted_BHQK: Tensor | None) -> None:
        self.scheme, self.same_BHQK, self.counted_BHQK = scheme, same_BHQK, counted_BHQK

    def bias(self, layer: int, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        s_HE, e_2HE = self.scheme.s[layer], self.scheme.e[layer]
        score_BHQ2 = (q_BHQE + s_HE[:, None]) @ e_2HE.permute(1, 2, 0) * self.scheme.scale
        other_BHQ1, same_BHQ1 = score_BHQ2.split(1, dim=-1)
        bias = torch.where(self.same_BHQK, same_BHQ1, other_BHQ1)
        return bias if self.counted_BHQK is None else bias * self.counted_BHQK
