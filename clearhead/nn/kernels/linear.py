"""Linear attention (Katharopoulos 2020): elu(x) + 1 as features instead of the softmax.

Not an approximation of softmax attention but another kernel: it has no scale, and its weights are flatter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .features import ByFeatures, Features
from .kernel import Kernel, Mixing


@dataclass(frozen=True, kw_only=True)
class Linear(Mixing):
    """Work and memory grow with the length; decoding keeps one matrix a head, however long the text."""

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Linear()


class _Linear(ByFeatures):
    def features(self, q_RHQE: Tensor, k_RHKE: Tensor, scale: float) -> tuple[Tensor, Features]:
        return F.elu(q_RHQE) + 1, Features(F.elu(k_RHKE) + 1, torch.zeros_like(k_RHKE[..., :1]))
