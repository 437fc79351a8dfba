"""Softmax attention (Vaswani 2017): the fused call and, beside it, the plain formula for whoever watches.

    softmax(q k' * scale + bias, where allowed) v

A query that may look at nothing gets zeros, with zero gradient.
Shape suffixes: B batch, H heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...spec import Positive, Rate
from ..norm import capped, widen
from ..tap import Tap
from ..view import View
from ..work import Meeting, Work
from . import costs
from .blocks import Asked
from .costs import Dense, Sparse
from .kernel import ALL, Call, Kernel, Mixing, changed, weighed
from .nearby import near, width_of


@dataclass(frozen=True, kw_only=True)
class Exact(Mixing):
    """The softmax of all scores. `cap` squashes them into (-cap, cap) (Gemma 2); `sink` is one more score for
    each head, learned, that takes its share of every query and gives nothing (gpt-oss).
    """

    dropout: Rate = 0.0
    cap: Positive | None = None
    sink: bool = False

    def work(self, at: Meeting) -> Work:
        """Of a window, blocks of queries and all keys that any of them may see; otherwise all pairs."""
        dense = Dense(self.dropout, cap=self.cap is not None, sink=self.sink)
        if at.window is None or self.cap is not None or self.sink:
            return dense.work(at)
        left, right = at.window[0], 0 if at.causal else at.window[1]
        width = width_of(left, right, at.queries, at.keys)
        if width is None:
            return dense.work(at)
        blocks = Sparse(-(-at.queries // width), width, left + width + right, into=False)
        return blocks.work(at, self.dropout) + costs.answer(at)


@dataclass(frozen=True, kw_only=True)
class Softmax(Exact):
    """Everyone that the mask allows. Of a window (`Attention.window`) only the inside is computed."""

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Softmax(self, heads)


class _Softmax(Kernel):
    supports = frozenset({"causal", "mask", "bias", "uneven", "pattern"})
    is_replayable = True

    def __init__(self, spec: Exact, heads: int) -> None:
        super().__init__()
        self.cap, self.dropout = spec.cap, spec.dropout
        self.sink = nn.Parameter(torch.empty(heads)) if spec.sink else None
        self.is_plain = spec.cap is not None or spec.sink  # what the fused call cannot do
        self.shares = not spec.sink

    def mix(
        self,
        q_BHQE: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        *,
        view: View,
        bias: Tensor | None,
        scale: float,
        tap: Tap,
    ) -> Tensor:
        p = self.dropout if self.training else 0.0
        if self.is_plain or tap.wants("pattern"):
            plain = pattern(q_BHQE, k_BHKE, view=view, bias=bias, scale=scale, cap=self.cap, sink_H=self.sink)
            if self.is_plain:
                return weighed(tap("pattern", plain), v_BHKE, p)
            if (answer := changed(tap, plain, v_BHKE, p)) is not None:
                return answer
        if nearby := near(view):
            return nearby.mix(q_BHQE, k_BHKE, v_BHKE, Asked(view, bias, scale, p))
        return F.scaled_dot_product_attention(
            q_BHQE,
            k_BHKE,
            v_BHKE,
            None if bias is None and view.is_causal else view.biased(bias),
            dropout_p=p,
            is_causal=bias is None and view.is_causal,
            scale=scale,
            enable_gqa=q_BHQE.shape[1] != k_BHKE.shape[1],
        )

    def pattern(self, call: Call, heads: slice = ALL) -> Tensor:
        """Heads do not know of each other, so those that nobody asked for are not computed."""
        if call.view.dense is not None and call.view.dense.shape[1] > 1:
            return super().pattern(call, heads)  # a mask of its own for every head
        count, group = call.q_BHQE.shape[1], call.q_BHQE.shape[1] // call.k_BHKE.shape[1]
        k = call.k_BHKE[:, [head // group for head in range(count)[heads]]]
        bias = call.bias if call.bias is None or call.bias.shape[1] == 1 else call.bias[:, heads]
        q, sink = call.q_BHQE[:, heads], None if self.sink is None else self.sink[heads]
        return pattern(q, k, view=call.view, bias=bias, scale=call.scale, cap=self.cap, sink_H=sink)


def pattern(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    *,
    view: View,
    bias: Tensor | None,
    scale: float,
    cap: float | None = None,
    sink_H: Tensor | None = None,
) -> Tensor:
    """The textbook formula as far as the weights, before dropout: (B, H, Q, K).

    Rows sum to one; with a sink, to what it leaves.
    """
    k_BHKE = k_BHKE.repeat_interleave(q_BHQE.shape[1] // k_BHKE.shape[1], dim=1)
    scores_BHQK = capped(widen(q_BHQE) @ widen(k_BHKE).mT * scale, cap)
    if bias is not None:
        scores_BHQK = scores_BHQK + bias
    if view.dense is None:
        return _shares(scores_BHQK, sink_H).type_as(q_BHQE)
    # The least finite number, not -inf: a row that is blocked throughout stays finite, forwards and
    # backwards, and the second fill makes it the zeros it should be.
    lowest = torch.finfo(scores_BHQK.dtype).min
    weights_BHQK = _shares(scores_BHQK.masked_fill(~view.dense, lowest), sink_H)
    return weights_BHQK.masked_fill(~view.dense, 0.0).type_as(q_BHQE)


def _shares(scores_BHQK: Tensor, sink_H: Tensor | None) -> Tensor:
    if sink_H is None:
        return scores_BHQK.softmax(dim=-1)
    sink = sink_H.type_as(scores_BHQK)[:, None, None].expand(*scores_BHQK.shape[:-1], 1)
    return torch.cat([scores_BHQK, sink], dim=-1).softmax(dim=-1)[..., :-1]
