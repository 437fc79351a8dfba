"""Norms of queries and keys: shared by all heads, one for each head, or one over all of them.

Shape suffixes: B batch, T tokens, H heads, E head width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from .attention import Attention


class HeadNorms(nn.ModuleList):
    """A norm for each head, with weights of its own."""

    def forward(self, x_BTHE: Tensor) -> Tensor:
        return torch.stack([norm(x_BTE) for norm, x_BTE in zip(self, x_BTHE.unbind(2), strict=True)], dim=2)


def head_norm(spec: Attention, heads: int, head_dim: int) -> nn.Module | None:
    if spec.qk_norm is None:
        return None
    if spec.qk_norm_heads == "each":
        return HeadNorms(spec.qk_norm.build(head_dim) for _ in range(heads))
    return spec.qk_norm.build(heads * head_dim if spec.qk_norm_heads == "joint" else head_dim)
