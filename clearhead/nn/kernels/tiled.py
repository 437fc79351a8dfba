"""Tiled attention: what FlashAttention (Dao 2022) does, written out. Exact; never more than a tile of scores.

The softmax of a row can be computed while its scores come in by pieces: keep the largest score so far, the
sum of exponentials and the weighted sum of values, and shrink both sums whenever a larger score turns up.

    for each tile of queries:                   most = -inf, total = 0, mixed = 0
        for each tile of keys:                  scores = q k' * scale
            larger = max(most, scores)          weights = exp(scores - larger)
            total  = total * exp(most - larger) + sum of weights
            mixed  = mixed * exp(most - larger) + weights v
        out = mixed / total

In the backward pass a row of tiles is recomputed instead of being kept. `Softmax` does the same in one fused
call; this one is for reading, and to check that one.
Shape suffixes: B batch, H heads, Q queries, K keys, E head width, R queries of a tile, C keys of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ...errors import SpecError
from ..cost import AttentionShape, PartCost, matmul_cost
from ..norm import widen
from ..tap import Tap
from ..view import View
from .kernel import AttentionCall, AttentionKernel, Kernel, replaced_output
from .softmax import attention_weights


@dataclass(frozen=True, kw_only=True)
class Tiled(AttentionKernel):
    tile: int = 128

    def check(self) -> None:
        if self.tile < 1:
            raise SpecError(f"Tiled.tile is {self.tile}, expected 1 or more tokens")

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Tiled(self)

    def cost(self, at: AttentionShape) -> PartCost:
        """All pairs, tile by tile; recomputed in the backward pass. No scores are kept."""
        rows, both = at.batch * at.heads, at.head_dim + at.value_dim
        work = matmul_cost(rows, at.queries, at.keys, both)
        numbers = at.number * rows * both * (at.queries + at.keys)
        again = PartCost(backward=work.flops, saved=numbers + 8 * at.queries)
        return work + again if at.training else work


class _Tiled(Kernel):
    supports = frozenset({"causal", "mask", "uneven", "pattern"})

    def __init__(self, spec: Tiled) -> None:
        super().__init__()
        self.tile = spec.tile

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        call = call.repeat_kv()
        view, q_BHQE = call.view, call.q_BHQE
        if tap.wants("pattern"):
            answer = replaced_output(tap, attention_weights(call), call.v_BHKE)
            if answer is not None:
                return answer
        slots = torch.arange(view.start, view.start + view.queries, device=q_BHQE.device)
        tiles = zip(torch.split(q_BHQE, self.tile, 2), torch.split(slots, self.tile), strict=True)
        return torch.cat([self._row(q, slot, call) for q, slot in tiles], dim=2)

    def _row(self, q_BHRE: Tensor, slot_R: Tensor, call: AttentionCall) -> Tensor:
        """One tile of queries over all tiles of keys."""
        k_BHKE, v_BHKE = call.k_BHKE, call.v_BHKE
        given = (q_BHRE, slot_R, k_BHKE, v_BHKE, call.view, call.scale)
        if torch.is_grad_enabled():
            done: Tensor = checkpoint(self._online, *given, use_reentrant=False)
            return done
        return self._online(*given)

    def _online(
        self, q_BHRE: Tensor, slot_R: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, view: View, scale: float
    ) -> Tensor:
        q = widen(q_BHRE)
        lowest = torch.finfo(q.dtype).min
        most = q.new_full((*q.shape[:3], 1), lowest)
        total, mixed = torch.zeros_like(most), q.new_zeros(*q.shape[:3], v_BHKE.shape[-1])
        b = torch.arange(view.batch, device=q.device)[:, None, None, None]
        slots = torch.arange(k_BHKE.shape[2], device=q.device)
        pieces = (torch.split(x, self.tile, dim) for x, dim in ((k_BHKE, 2), (v_BHKE, 2), (slots, 0)))
        for k, v, slot_C in zip(*pieces, strict=True):
            scores_BHRC = q @ widen(k).mT * scale
            allowed = view.mask.allows(
                b, torch.zeros_like(b), slot_R[None, None, :, None], slot_C[None, None, None, :]
            )
            larger = torch.maximum(
                most, scores_BHRC.masked_fill(~allowed, lowest).amax(-1, keepdim=True)
            ).detach()
            weights = (scores_BHRC - larger).masked_fill(~allowed, lowest).exp().masked_fill(~allowed, 0.0)
            shrunk = (most - larger).exp()
            total = total * shrunk + weights.sum(-1, keepdim=True)
            mixed = mixed * shrunk + weights @ widen(v)
            most = larger
        # A query that may attend to nothing has a total of zero, and a mix of zeros.
        return (mixed / total.masked_fill(total == 0, 1.0)).type_as(q_BHRE)
