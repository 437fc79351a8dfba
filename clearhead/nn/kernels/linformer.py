"""Linformer (Wang 2020): keys and values of all tokens projected to `rank` of each; softmax over those.

    softmax(q (E'k)' * scale) (F'v),     E and F learned, one row for each position up to `length`

The implied weights of tokens may be negative, and those of a query need not sum to one.
A projected key depends on the whole text: there is no causal form.
Shape suffixes: R texts, H heads, Q queries, K keys, P projected keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...spec import Count, Directions
from ..cost import AttentionShape, PartCost, matmul_cost
from ..layers import InitDistribution
from .kernel import AttentionKernel, Kernel
from .per_sequence import PerSequenceKernel, RowInfo, kept_per_row


@dataclass(frozen=True, kw_only=True)
class Linformer(AttentionKernel):
    """`share`: one matrix for keys and values ("kv"), one for each ("heads"), those per head ("none")."""

    rank: Directions = 64
    length: Count = 512  # the longest text it can take: each position has a row of its own
    share: Literal["kv", "heads", "none"] = "heads"

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Linformer(self, heads)

    def cost(self, at: AttentionShape) -> PartCost:
        """Keys and values are projected, then attention runs over few of them."""
        rows, both = at.batch * at.heads, at.head_dim + at.value_dim
        projection_cost = matmul_cost(rows, self.rank, at.keys, both)
        scores_cost = matmul_cost(rows, at.queries, self.rank, both)
        sets = {"kv": 1, "heads": 2, "none": 2 * at.heads}[self.share]
        numbers = both * (at.keys + self.rank + at.queries) + at.queries * self.rank
        return (
            projection_cost
            + scores_cost
            + kept_per_row(at, numbers)
            + PartCost(parameters=sets * self.length * self.rank)
        )


class _Linformer(PerSequenceKernel):
    supports = frozenset({"padding", "documents", "uneven", "pattern"})
    reasons: ClassVar = {
        "causal": "its keys are mixtures of the whole text, so that early words would see late ones"
    }
    is_normalised = False

    def __init__(self, spec: Linformer, heads: int) -> None:
        super().__init__()
        shape = (heads if spec.share == "none" else 1, spec.length, spec.rank)
        self.init_distribution = InitDistribution((3 * spec.rank) ** -0.5, uniform=True)
        self.k = nn.Parameter(torch.empty(shape))
        self.v = self.k if spec.share == "kv" else nn.Parameter(torch.empty(shape))

    def attend_rows(
        self, q_RHQE: Tensor, k_RHKE: Tensor, v_RHKE: Tensor, *, info: RowInfo, scale: float
    ) -> Tensor:
        count = k_RHKE.shape[2]
        if count > self.k.shape[1]:
            raise InputError(
                f"Linformer has projections for {self.k.shape[1]} positions, this text has {count} tokens; "
                f"cut it, or build the model with a larger Linformer.length"
            )
        k_RHPE = self.k[:, :count].mT.type_as(k_RHKE) @ k_RHKE
        v_RHPE = self.v[:, :count].mT.type_as(v_RHKE) @ v_RHKE
        return (q_RHQE @ k_RHPE.mT * scale).softmax(dim=-1) @ v_RHPE
