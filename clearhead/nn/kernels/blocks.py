"""Block-sparse softmax attention: blocks of queries, each with a list of keys, in; weighted values out.

A sparse kernel lists the keys that each block of queries attends to; everything else is done here. The mask
of the call is evaluated for those pairs only, so that no tensor of all pairs is allocated.
Shape suffixes: B batch, H query heads, G key/value heads, C blocks, W queries of a block, S keys of a block,
Q queries, K keys, E head width (of keys or of values).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..norm import widen
from ..tap import Tap
from ..view import View
from .kernel import AttentionCall, Kernel, replaced_output
from .training import training_attention


@dataclass(frozen=True)
class Blocks:
    """Which slots each block attends to; -1 where there is none. Query slots count from the first query."""

    q_BCW: Tensor  # (1 or B, C, W)
    k_BHCS: Tensor  # (1 or B, 1 or H, C, S); a slot that is listed twice counts twice
    near: Tensor | None = None  # pairs that the kernel's own rule allows; broadcasts to (B, H, C, W, S)

    def attend(self, call: AttentionCall, dropout: float = 0.0, into: Tensor | None = None) -> Tensor:
        """The weighted values, by torch's fused call: every block is a row of its batch.

        `into` holds the output for the queries that are in no block.
        """
        q, k, v = self._queries(call.q_BHQE), self._keys(call.k_BHKE), self._keys(call.v_BHKE)
        mask = self._allowed(call.view)
        if call.bias is not None:
            mask = self._pairs(call.bias).masked_fill(~mask, float("-inf"))
        attention = training_attention if dropout else F.scaled_dot_product_attention
        mixed = attention(
            _rows(q),
            _rows(k),
            _rows(v),
            _rows(mask.expand(len(q), *mask.shape[1:])),
            dropout_p=dropout,
            scale=call.scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        mixed = mixed.reshape(len(q), -1, *mixed.shape[1:]).transpose(1, 2)
        return self._scatter(mixed, call.q_BHQE.shape[2], into)

    def pattern(self, call: AttentionCall, into: Tensor | None = None) -> Tensor:
        """The weights as one (B, H, Q, K) matrix, zero outside the lists. Only for taps: it is dense."""
        q_BHQE, k_BGKE = call.q_BHQE, call.k_BHKE
        q, k = self._queries(q_BHQE), self._keys(k_BGKE)
        scores = widen(q) @ widen(k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)).mT * call.scale
        if call.bias is not None:
            scores = scores + self._pairs(call.bias)
        blocked = ~self._allowed(call.view)
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(blocked, lowest).softmax(dim=-1).masked_fill(blocked, 0.0)
        columns = self.k_BHCS.clamp(min=0)[..., None, :].expand(weights.shape)
        dense = weights.new_zeros(*weights.shape[:-1], k_BGKE.shape[2]).scatter_add(-1, columns, weights)
        return self._scatter(dense.type_as(q_BHQE), q_BHQE.shape[2], into)

    def _allowed(self, view: View) -> Tensor:
        """(1 or B, 1 or H, C, W, S): what lists, kernel rule and the mask of the call allow."""
        q, k = self.q_BCW[:, None, :, :, None], self.k_BHCS[..., None, :]
        allowed = (k >= 0) & (q >= 0)
        if self.near is not None:
            allowed = allowed & self.near
        in_view = view.allows(q.clamp(min=0) + view.start, k.clamp(min=0))
        return allowed if in_view is None else allowed & in_view

    def _queries(self, q_BHQE: Tensor) -> Tensor:
        return _take(q_BHQE, self.q_BCW[:, None])

    def _keys(self, x_BGKE: Tensor) -> Tensor:
        lists = self.k_BHCS.shape[1]
        if lists > x_BGKE.shape[1]:  # lists differ between heads that share a key
            x_BGKE = x_BGKE.repeat_interleave(lists // x_BGKE.shape[1], dim=1)
        return _take(x_BGKE, self.k_BHCS)

    def _pairs(self, bias_BHQK: Tensor) -> Tensor:
        """The bias of the pairs in the lists, (B, H, C, W, S)."""
        rows = _take(bias_BHQK, self.q_BCW[:, None])
        columns = self.k_BHCS.clamp(min=0)[..., None, :]
        shape = [max(pair) for pair in zip(rows.shape[:-1], columns.shape[:-1], strict=True)]
        return rows.expand(*shape, -1).gather(-1, columns.expand(*shape, -1))

    def _scatter(self, x_BHCWE: Tensor, queries: int, into_BHQE: Tensor | None) -> Tensor:
        """Rows in the order of the queries; `into` holds the output for queries that are in no block."""
        x_BHNE, at_BN = x_BHCWE.flatten(2, 3), self.q_BCW.flatten(1)
        if into_BHQE is None:  # every query is in some block, the same one in every row
            return x_BHNE[:, :, at_BN[0].masked_fill(at_BN[0] < 0, queries).argsort()[:queries]]
        b, n = (at_BN >= 0).nonzero(as_tuple=True)
        if len(at_BN) == 1:
            return into_BHQE.index_copy(2, at_BN[0, n], x_BHNE[:, :, n])
        rows = into_BHQE.transpose(1, 2).index_put((b, at_BN[b, n]), x_BHNE.transpose(1, 2)[b, n])
        return rows.transpose(1, 2)


class BlockKernel(Kernel):
    """Base of the kernels that only define blocks; a query that is in no block gets zeros."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def blocks(self, view: View, heads: int) -> Sequence[Blocks]:
        """Which queries attend to which keys in this call; a query is in one block at most."""
        raise NotImplementedError

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        dropout, q_BHQE = self.dropout if self.training else 0.0, call.q_BHQE
        every = self.blocks(call.view, q_BHQE.shape[1])
        if tap.wants("pattern"):
            plain = q_BHQE.new_zeros(*q_BHQE.shape[:3], call.view.keys)
            for blocks in every:
                plain = blocks.pattern(call, into=plain)
            if (answer := replaced_output(tap, plain, call.v_BHKE, dropout)) is not None:
                return answer
        mixed = q_BHQE.new_zeros(*q_BHQE.shape[:3], call.v_BHKE.shape[-1])
        for blocks in every:
            mixed = blocks.attend(call, dropout, into=mixed)
        return mixed


def _rows(x_BHCWE: Tensor) -> Tensor:
    """(B * C, H, W, E): every block becomes one row of the batch for torch's fused call."""
    return x_BHCWE.transpose(1, 2).flatten(0, 1)


def _take(x_BHKE: Tensor, slots_BHCS: Tensor) -> Tensor:
    """(B, H, C, S, E): the vectors in these slots."""
    slots = slots_BHCS.clamp(min=0)
    if slots.shape[:2] == (1, 1):
        return x_BHKE[:, :, slots[0, 0]]
    batch, heads = max(len(slots), len(x_BHKE)), x_BHKE.shape[1]
    b = torch.arange(batch, device=slots.device)[:, None, None, None]
    h = torch.arange(heads, device=slots.device)[None, :, None, None]
    return x_BHKE.expand(batch, -1, -1, -1)[b, h, slots]
