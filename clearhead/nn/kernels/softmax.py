"""Softmax attention (Vaswani 2017): torch's fused call, and the plain formula where weights are recorded.

    softmax(q k' * scale + bias, where allowed) v

A query that may attend to nothing gets zeros, with zero gradient.
Shape suffixes: B batch, H heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...spec import Positive, Rate
from ..cost import AttentionShape, PartCost
from ..norm import capped, widen
from ..tap import Tap
from . import costs
from .costs import Dense, Sparse
from .kernel import ALL, AttentionCall, AttentionKernel, Kernel, replaced_output, weighed
from .window_blocks import width_of, window_blocks


@dataclass(frozen=True, kw_only=True)
class SoftmaxSpec(AttentionKernel):
    """What softmax kernels have in common. `cap` squashes scores into (-cap, cap) (Gemma 2); `sink` is a
    learned score per head that takes part in every softmax and contributes no value (gpt-oss).
    """

    dropout: Rate = 0.0
    cap: Positive | None = None
    sink: bool = False

    def cost(self, at: AttentionShape) -> PartCost:
        """Of a window, blocks of queries and all keys that any of them may see; otherwise all pairs."""
        dense = Dense(self.dropout, cap=self.cap is not None, sink=self.sink)
        if at.window is None or self.cap is not None or self.sink:
            return dense.cost(at)
        left, right = at.window[0], 0 if at.causal else at.window[1]
        width = width_of(left, right, at.queries, at.keys)
        if width is None:
            return dense.cost(at)
        blocks = Sparse(-(-at.queries // width), width, left + width + right, into=False)
        return blocks.cost(at, self.dropout) + costs.answer(at)


@dataclass(frozen=True, kw_only=True)
class Softmax(SoftmaxSpec):
    """All keys that the mask allows. With a window (`Attention.window`) only pairs inside are computed."""

    def build(self, heads: int, head_dim: int) -> Kernel:
        return SoftmaxKernel(self, heads)


class SoftmaxKernel(Kernel):
    supports = frozenset({"causal", "mask", "bias", "uneven", "pattern"})
    is_replayable = True

    def __init__(self, spec: SoftmaxSpec, heads: int) -> None:
        super().__init__()
        self.cap, self.dropout = spec.cap, spec.dropout
        self.sink = nn.Parameter(torch.empty(heads)) if spec.sink else None
        self.is_plain = spec.cap is not None or spec.sink  # the fused call can do neither
        self.shares = not spec.sink

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        p = self.dropout if self.training else 0.0
        if self.is_plain or tap.wants("pattern"):
            plain = attention_weights(call, cap=self.cap, sink_H=self.sink)
            if self.is_plain:
                return weighed(tap("pattern", plain), call.v_BHKE, p)
            if (answer := replaced_output(tap, plain, call.v_BHKE, p)) is not None:
                return answer
        view, bias = call.view, call.bias
        if blocks := window_blocks(view):
            return blocks.attend(call, p)
        # Without a mask tensor torch may pick its causal kernel, which skips half of the scores.
        is_causal = bias is None and view.is_causal
        return F.scaled_dot_product_attention(
            call.q_BHQE,
            call.k_BHKE,
            call.v_BHKE,
            None if is_causal else view.biased(bias),
            dropout_p=p,
            is_causal=is_causal,
            scale=call.scale,
            enable_gqa=call.q_BHQE.shape[1] != call.k_BHKE.shape[1],
        )

    def pattern(self, call: AttentionCall, heads: slice = ALL) -> Tensor:
        """Heads are independent of each other, so only the requested ones are computed."""
        if call.view.dense is not None and call.view.dense.shape[1] > 1:
            return super().pattern(call, heads)  # every head has a mask of its own
        count = call.q_BHQE.shape[1]
        k = call.k_BHKE[:, [head // call.heads_per_kv for head in range(count)[heads]]]
        bias = call.bias if call.bias is None or call.bias.shape[1] == 1 else call.bias[:, heads]
        sink = None if self.sink is None else self.sink[heads]
        some = AttentionCall(call.q_BHQE[:, heads], k, call.v_BHKE, call.view, bias, call.scale)
        return attention_weights(some, cap=self.cap, sink_H=sink)


def attention_weights(
    call: AttentionCall, *, cap: float | None = None, sink_H: Tensor | None = None
) -> Tensor:
    """The textbook formula as far as the weights, before dropout: (B, H, Q, K).

    Rows sum to one; with a sink, to one minus its weight.
    """
    k_BHKE = call.k_BHKE.repeat_interleave(call.heads_per_kv, dim=1)
    scores_BHQK = capped(widen(call.q_BHQE) @ widen(k_BHKE).mT * call.scale, cap)
    if call.bias is not None:
        scores_BHQK = scores_BHQK + call.bias
    allowed = call.view.dense
    if allowed is None:
        return _softmax(scores_BHQK, sink_H).type_as(call.q_BHQE)
    # The least finite number, not -inf: a row that is blocked throughout stays finite, forwards and
    # backwards, and the second fill makes it the zeros it should be.
    lowest = torch.finfo(scores_BHQK.dtype).min
    weights_BHQK = _softmax(scores_BHQK.masked_fill(~allowed, lowest), sink_H)
    return weights_BHQK.masked_fill(~allowed, 0.0).type_as(call.q_BHQE)


def _softmax(scores_BHQK: Tensor, sink_H: Tensor | None) -> Tensor:
    if sink_H is None:
        return scores_BHQK.softmax(dim=-1)
    sink = sink_H.type_as(scores_BHQK)[:, None, None].expand(*scores_BHQK.shape[:-1], 1)
    return torch.cat([scores_BHQK, sink], dim=-1).softmax(dim=-1)[..., :-1]
