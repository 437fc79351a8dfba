"""Softmax attention (Vaswani 2017): torch's fused call, and the plain formula where weights are recorded.

    softmax(q k' * scale + bias, where allowed) v

A query that may attend to nothing gets zeros, with zero gradient. Under a window, neighbouring queries share
most of their keys: a block of queries is computed with all keys that any of them may attend to, so that n
tokens with a window of w cost n * w pairs, not n * n.
Shape suffixes: B batch, H heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...spec import Positive, Rate
from ..cost import AttentionShape, PartCost
from ..norm import soft_cap, widen
from ..tap import Tap
from ..view import View
from . import costs
from .blocks import Blocks
from .costs import Dense, Sparse
from .kernel import ALL, AttentionCall, AttentionKernel, Kernel, apply_weights, replaced_output
from .training import training_attention

SMALLEST_WIDTH = 64  # queries of a block, at least: small products cost more than the pairs they save


@dataclass(frozen=True, kw_only=True)
class SoftmaxSpec(AttentionKernel):
    """What softmax kernels have in common. `cap` squashes scores into (-cap, cap) (Gemma 2); `sink` is a
    learned score per head that takes part in every softmax and contributes no value (gpt-oss).
    """

    dropout: Rate = 0.0
    cap: Positive | None = None
    sink: bool = False

    def cost(self, at: AttentionShape) -> PartCost:
        """With a window, blocks of queries and the keys any of them may attend to; otherwise all pairs."""
        dense = Dense(self.dropout, cap=self.cap is not None, sink=self.sink)
        if at.window is None or self.cap is not None or self.sink:
            return dense.cost(at)
        left, right = at.window[0], 0 if at.causal else at.window[1]
        width = width_of(left, right, at.queries, at.keys)
        if width is None:
            return dense.cost(at)
        blocks = Sparse(-(-at.queries // width), width, left + width + right, into=False)
        return blocks.cost(at, self.dropout) + costs.output_copy(at)


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
        self.is_plain = spec.cap is not None or spec.sink  # the fused call supports neither
        self.is_normalised = not spec.sink

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        p = self.dropout if self.training else 0.0
        if self.is_plain or tap.wants("pattern"):
            plain = attention_weights(call, cap=self.cap, sink_H=self.sink)
            if self.is_plain:
                return apply_weights(tap("pattern", plain), call.v_BHKE, p)
            if (answer := replaced_output(tap, plain, call.v_BHKE, p)) is not None:
                return answer
        view, bias = call.view, call.bias
        if newest := newest_keys(view):
            # The same calls however long the text is, so that a decode step can be replayed.
            mask = None if view.outline.is_window and bias is None else view.attn_mask(bias)
            return F.scaled_dot_product_attention(
                call.q_BHQE,
                call.k_BHKE[:, :, -newest:],
                call.v_BHKE[:, :, -newest:],
                None if mask is None else mask[..., -newest:],
                dropout_p=p,
                scale=call.scale,
                enable_gqa=call.q_BHQE.shape[1] != call.k_BHKE.shape[1],
            )
        if blocks := window_blocks(view):
            return blocks.attend(call, p)
        # Without a mask tensor torch may pick its causal kernel, which skips half of the scores.
        is_causal = bias is None and view.is_causal
        attention = training_attention if self.training else F.scaled_dot_product_attention
        return attention(
            call.q_BHQE,
            call.k_BHKE,
            call.v_BHKE,
            None if is_causal else view.attn_mask(bias),
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


def width_of(left: int, right: int, queries: int, keys: int) -> int | None:
    """How many queries form a block; `None` if their keys would be most of the text."""
    width = min(max(left + right, SMALLEST_WIDTH), queries)
    return None if 2 * (left + width + right) > keys else width


def newest_keys(view: View) -> int:
    """How many of the last keys a single newest query may attend to, by its window; 0 without one."""
    outline = view.outline
    newest = view.queries == 1 and view.start + 1 == view.keys and not view.is_cross
    if not newest or outline.window is None or outline.more:
        return 0
    return outline.window[0] + 1


def window_blocks(view: View) -> Blocks | None:
    """The blocks of a view with a window; `None` without one, or if it covers most of the text."""
    if view.outline.window is None or view.is_cross:
        return None
    left, right = view.outline.window
    right = 0 if view.outline.causal else right
    queries, device = view.queries, view.k_pos.device
    width = width_of(left, right, queries, view.keys)
    if width is None:
        return None
    first_C1 = torch.arange(0, queries, width, device=device)[:, None]
    q_CW = first_C1 + torch.arange(width, device=device)
    k_CS = first_C1 + view.start + torch.arange(-left, width + right, device=device)
    inside = (k_CS >= 0) & (k_CS < view.keys)
    return Blocks(q_CW.masked_fill(q_CW >= queries, -1)[None], k_CS.masked_fill(~inside, -1)[None, None])


def attention_weights(
    call: AttentionCall, *, cap: float | None = None, sink_H: Tensor | None = None
) -> Tensor:
    """The attention weights by the textbook formula, before dropout: (B, H, Q, K).

    Rows sum to one; with a sink, to one minus its weight.
    """
    k_BHKE = call.k_BHKE.repeat_interleave(call.heads_per_kv, dim=1)
    scores_BHQK = soft_cap(widen(call.q_BHQE) @ widen(k_BHKE).mT * call.scale, cap)
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
