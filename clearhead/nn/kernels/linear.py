"""Linear attention (Katharopoulos 2020): elu(x) + 1 as features instead of the softmax.

Not an approximation of softmax attention but another kernel: it has no scale, and its weights are flatter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cost import AttentionShape, PartCost
from .features import FeatureKernel, Features, first_chunk, sums_cost
from .kernel import AttentionKernel, Kernel
from .per_sequence import kept_per_row


@dataclass(frozen=True, kw_only=True)
class Linear(AttentionKernel):
    """Work and memory grow with the length; decoding keeps one matrix per head, however long the text."""

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Linear()

    def cost(self, at: AttentionShape) -> PartCost:
        """Queries and keys as they came, and their features; in a decoder queries chunk by chunk."""
        size = at.head_dim
        features = size * (at.queries + at.keys)
        if at.causal:
            features += size * (at.keys - first_chunk(at))
        return sums_cost(at, size) + kept_per_row(at, size * (at.queries + at.keys) + features)

    def cached(self, at: AttentionShape) -> int:
        """One matrix per head and its scale, however long the text."""
        return at.batch * at.heads * (at.head_dim * (at.value_dim + 1) + 1)


class _Linear(FeatureKernel):
    def features(self, q_RHQE: Tensor, k_RHKE: Tensor, scale: float) -> tuple[Tensor, Features]:
        return F.elu(q_RHQE) + 1, Features(F.elu(k_RHKE) + 1, torch.zeros_like(k_RHKE[..., :1]))
