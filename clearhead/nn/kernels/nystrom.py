"""Nystrom attention (Xiong 2021): a few landmarks stand for all tokens.

    softmax(q k~') pinv(softmax(q~ k~')) softmax(q~ k') v,   q~, k~ the means of `landmarks` parts of the text

With as many landmarks as tokens it is exact. The inverse is found by a few products (Razavi 2014), each
matrix by itself, so that no output depends on the rest of the batch. Weights may be negative; those of a
query add up to one as far as the inverse has converged. A landmark holds later tokens: no causal form.
Shape suffixes: R texts, H heads, T tokens, M landmarks, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...spec import BlockLength, Repeats
from ..cost import AttentionShape, PartCost, matmul_cost
from .kernel import AttentionKernel, Kernel
from .per_sequence import PerSequenceKernel, RowInfo, kept_per_row


@dataclass(frozen=True, kw_only=True)
class Nystrom(AttentionKernel):
    one_text: ClassVar[bool] = True
    landmarks: BlockLength = 64
    iterations: Repeats = 6

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Nystrom(self)

    def cost(self, at: AttentionShape) -> PartCost:
        """Means, three softmaxes, an inverse by four products per round, and the product with the values."""
        rows, n, few = at.batch * at.heads, at.keys, min(self.landmarks, at.keys)
        means = matmul_cost(rows, few, n, at.head_dim).times(2)
        scores = matmul_cost(rows, n, at.head_dim, few).times(2) + matmul_cost(rows, few, at.head_dim, few)
        inverse = matmul_cost(rows, few, few, few).times(4 * self.iterations)
        mix = matmul_cost(rows, few, n, at.value_dim).times(2) + matmul_cost(rows, few, few, at.value_dim)
        numbers = 4 * n * few + n * (2 * at.head_dim + 2 * at.value_dim)
        numbers += 4 * few * at.head_dim + (5 * self.iterations + 3) * few**2
        # The assignment of tokens to landmarks has no gradient.
        return means + PartCost(backward=-means.flops) + scores + inverse + mix + kept_per_row(at, numbers)


class _Nystrom(PerSequenceKernel):
    supports = frozenset({"padding", "documents", "pattern"})
    reasons: ClassVar = {
        "causal": "its landmarks are means over the whole text, so that early words would see late ones",
        "uneven": "its landmarks divide one text",
    }
    is_normalised = False

    def __init__(self, spec: Nystrom) -> None:
        super().__init__()
        self.spec = spec

    def attend_rows(
        self, q_RHTE: Tensor, k_RHTE: Tensor, v_RHTE: Tensor, *, info: RowInfo, scale: float
    ) -> Tensor:
        rows, tokens = len(q_RHTE), q_RHTE.shape[2]
        real_RT = info.real_RK
        if real_RT is None:
            real_RT = torch.ones(rows, tokens, dtype=torch.bool, device=q_RHTE.device)
        member_RMT = self._members(real_RT).type_as(q_RHTE)
        share_RMT = member_RMT / member_RMT.sum(-1, keepdim=True).clamp(min=1)
        q_RHME, k_RHME = share_RMT[:, None] @ q_RHTE, share_RMT[:, None] @ k_RHTE
        there_RM = share_RMT.sum(-1) > 0
        to_landmarks = _softmax(q_RHTE @ k_RHME.mT * scale, there_RM)
        among = _softmax(q_RHME @ k_RHME.mT * scale, there_RM)
        from_landmarks = _softmax(q_RHME @ k_RHTE.mT * scale, real_RT)
        # An unused landmark (short texts) becomes a row of the identity, which does not change the inverse.
        alone = torch.diag_embed((~there_RM).type_as(among))[:, None]
        among = torch.where(there_RM[:, None, :, None], among, alone)
        return to_landmarks @ (self._inverse(among) @ (from_landmarks @ v_RHTE))

    def _members(self, real_RT: Tensor) -> Tensor:
        """(R, M, T): the tokens of each landmark. Parts of equal length; short texts have fewer landmarks."""
        length_R1 = real_RT.sum(1, keepdim=True)
        count_R1 = length_R1.clamp(max=self.spec.landmarks)
        token_T = torch.arange(real_RT.shape[1], device=real_RT.device)
        part_RT = token_T * count_R1 // length_R1.clamp(min=1)
        most = min(self.spec.landmarks, real_RT.shape[1])
        landmark_M1 = torch.arange(most, device=real_RT.device)[:, None]
        return (part_RT[:, None] == landmark_M1) & real_RT[:, None]

    def _inverse(self, a_RHMM: Tensor) -> Tensor:
        eye = torch.eye(a_RHMM.shape[-1], dtype=a_RHMM.dtype, device=a_RHMM.device)
        # Rows of a softmax sum to one, so dividing by the largest column sum makes the iteration converge.
        z = a_RHMM.mT / a_RHMM.sum(-2, keepdim=True).amax(-1, keepdim=True)
        for _ in range(self.spec.iterations):
            az = a_RHMM @ z
            z = z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az))) / 4
        return z


def _softmax(scores_RHQK: Tensor, there_RK: Tensor) -> Tensor:
    lowest = torch.finfo(scores_RHQK.dtype).min
    return scores_RHQK.masked_fill(~there_RK[:, None, None], lowest).softmax(dim=-1)
