"""Summary attention: a query attends to the tokens of its own block, and to one summary of each other block.

The summary of a block is the mean of its keys and the mean of its values, weighted by its number of tokens;
with blocks of one token this is full attention. In a decoder only earlier blocks are visible. Work grows with
length times (block + length / block).
Shape suffixes: R texts, H heads, Q queries, K keys, E head width, S tokens of a block, N blocks of the text,
M blocks that have queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ...spec import BlockLength
from ..cost import AttentionShape, PartCost, matmul_cost
from .kernel import AttentionKernel, Kernel
from .per_sequence import PerSequenceKernel, RowInfo, kept_per_row


@dataclass(frozen=True, kw_only=True)
class Summary(AttentionKernel):
    one_text: ClassVar[bool] = True
    block: BlockLength = 64

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Summary(self)

    def cost(self, at: AttentionShape) -> PartCost:
        """Each block of queries attends to its own keys and the means of all blocks."""
        size, both = self.block, at.head_dim + at.value_dim
        asking, there = -(-at.queries // size), -(-at.keys // size)
        work = matmul_cost(at.batch * at.heads * asking, size, size + there, both)
        numbers = asking * (size * (3 * at.head_dim + at.value_dim + size + there) + there * both)
        flags = at.batch * at.heads * asking * size**2 if at.causal else 0
        places = 8 * at.batch * (asking * size + at.queries)
        found = work + kept_per_row(at, numbers + at.queries * at.value_dim)
        return found + PartCost(saved=flags + places) if at.training else found


class _Summary(PerSequenceKernel):
    supports = frozenset({"causal", "padding", "documents", "uneven", "pattern"})

    def __init__(self, spec: Summary) -> None:
        super().__init__()
        self.block = spec.block

    def attend_rows(
        self, q_RHQE: Tensor, k_RHKE: Tensor, v_RHKE: Tensor, *, info: RowInfo, scale: float
    ) -> Tensor:
        size, (rows, _, keys, _) = self.block, k_RHKE.shape
        real_RK = info.real_RK
        if real_RK is None:
            real_RK = torch.ones(rows, keys, dtype=torch.bool, device=k_RHKE.device)
        # Keys and values by block, and their means over the real tokens.
        real_RNS = _blocks(real_RK[:, None, :, None], size)[:, 0, ..., 0]
        k_RHNSE, v_RHNSE = _blocks(k_RHKE, size), _blocks(v_RHKE, size)
        count_RN = real_RNS.sum(-1).type_as(q_RHQE)
        mean_k, mean_v = (x.sum(3) / count_RN.clamp(min=1)[:, None, :, None] for x in (k_RHNSE, v_RHNSE))

        # Scores with the tokens of the query's own block.
        lead_R, mine_RM, q_RHMSE = self._queries(q_RHQE, info, real_RNS.shape[1])
        row_R1 = torch.arange(rows, device=mine_RM.device)[:, None]
        own_k, own_v = (x[row_R1, :, mine_RM].transpose(1, 2) for x in (k_RHNSE, v_RHNSE))
        near = q_RHMSE @ own_k.mT * scale
        seen = real_RNS[row_R1, mine_RM][:, None, :, None]
        near = _blocked(near, seen.expand_as(near).tril() if info.causal else seen)

        # Scores with the summaries of the other blocks; log(count) gives each the weight of all its tokens.
        far = q_RHMSE @ mean_k[:, :, None].mT * scale + count_RN.clamp(min=1).log()[:, None, None, None]
        block_N = torch.arange(real_RNS.shape[1], device=mine_RM.device)
        other = block_N < mine_RM[..., None] if info.causal else block_N != mine_RM[..., None]
        far = _blocked(far, (other & (count_RN > 0)[:, None])[:, None, :, None])

        # One softmax over both, and the outputs back in the order of the queries.
        weights = torch.cat([near, far], dim=-1).softmax(dim=-1)
        near, far = weights[..., :size], weights[..., size:]
        mixed = (near @ own_v + far @ mean_v[:, :, None]).flatten(2, 3)
        place_RQ = lead_R[:, None] + torch.arange(q_RHQE.shape[2], device=lead_R.device)
        return mixed.transpose(1, 2)[row_R1, place_RQ].transpose(1, 2)

    def _queries(self, q_RHQE: Tensor, info: RowInfo, blocks: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries by block: the offset of the first in its block, the block numbers, and the queries."""
        rows, _, queries, _ = q_RHQE.shape
        before_R = torch.as_tensor(info.before, device=q_RHQE.device).expand(rows)
        lead_R = before_R % self.block
        most = info.before % self.block if isinstance(info.before, int) else int(lead_R.max())
        touched = -(-(queries + most) // self.block)
        mine_RM = before_R[:, None] // self.block + torch.arange(touched, device=q_RHQE.device)
        at_RT = torch.arange(touched * self.block, device=q_RHQE.device) - lead_R[:, None]
        row_R1 = torch.arange(rows, device=q_RHQE.device)[:, None]
        laid = q_RHQE.transpose(1, 2)[row_R1, at_RT.clamp(0, queries - 1)].transpose(1, 2)
        shape = (*laid.shape[:2], touched, self.block, -1)
        return lead_R, mine_RM.clamp(max=blocks - 1), laid.reshape(shape)


def _blocks(x_RHKE: Tensor, size: int) -> Tensor:
    """(R, H, K, E) -> (R, H, N, S, E), the last block padded with zeros."""
    filled = F.pad(x_RHKE, (0, 0, 0, -x_RHKE.shape[2] % size))
    return filled.reshape(*filled.shape[:2], -1, size, filled.shape[-1])


def _blocked(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
