"""Attention with block summaries (LongT5's transient-global): hidden states in, hidden states out.

                 x_BTD ──sum of each block, norm──▶ summaries_RND
    x_BTD, summaries_RND ──k, v──▶ keys and values      queries attend to near tokens and to all summaries

A summary has no query: it is made anew in every layer. Shape suffixes: B batch, R texts, T tokens, N blocks,
D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import SpecError, UnsupportedError
from ..spec import Count
from .attention import Attention, Projection, linear_projections_cost
from .context import Context
from .cost import INDEX_BYTES, AttentionShape, HiddenShape, PartCost, linear_cost
from .counting import count_cost
from .kernels import AttentionCall, Softmax
from .kernels.block_summaries import BlockSummariesKernel, Summaries, TextBlocks, Tiles
from .masks import Everyone, SlidingWindow
from .multi_head import MultiHead, SelfAttention
from .norm import RMS, Norm
from .view import View


@dataclass(frozen=True, kw_only=True)
class BlockSummaries(Projection):
    """Tokens also attend to a summary of every block of `block` tokens: the norm of the sum of its states,
    projected as a token is. `Attention.window` limits which tokens they attend to.
    """

    block: Count = 16
    norm: Norm = field(default_factory=RMS)

    has_summaries: ClassVar[bool] = True

    def check_attention(self, attention: Attention) -> None:
        if attention.qk_norm or attention.clip:
            raise SpecError("project=BlockSummaries: leave qk_norm and clip unset")
        kernel = attention.kernel
        if not isinstance(kernel, Softmax) or kernel.cap is not None or kernel.sink:
            raise SpecError(
                f"project=BlockSummaries needs kernel=Softmax without cap and sink; given {kernel}"
            )

    def build(self, attention: Attention, width: int) -> MultiHead:
        return SummaryAttention(attention, width, self)

    def cached(self, batch: int, keys: int) -> int:
        """Nothing: only encoders have summaries, which would show later tokens."""
        return 0

    def cost(self, attention: Attention, shape: HiddenShape, at: AttentionShape) -> PartCost:
        """Those of tokens; sums, norm, keys and values of summaries."""
        sums = replace(shape, length=shape.length // self.block)
        cost = linear_projections_cost(attention, shape, shape, at)
        for width in (at.head_dim, at.value_dim):
            projected = linear_cost(sums.vectors, sums.width, at.kv_heads * width, bias=False)
            cost += replace(projected, parameters=0)
        # Of each token its block; of each summary the sum and its norm.
        return cost + self.norm.cost(sums) + PartCost(saved=2 * sums.bytes + INDEX_BYTES * shape.vectors)

    def kernel_cost(self, attention: Attention, at: AttentionShape) -> PartCost:
        """Counted on the meta device, where dropout keeps less than on a CPU: that is added here."""
        cost = _kernel_cost(self, at)
        assert isinstance(attention.kernel, Softmax)
        if not at.training or attention.kernel.dropout == 0:
            return cost
        weights = at.batch * at.heads * _weights_per_head(at, self.block)
        return cost + PartCost(
            saved=at.number * weights + at.dropout_bytes(weights, attention.kernel.dropout)
        )


class SummaryAttention(SelfAttention):
    """Self-attention to tokens and to summaries of blocks. Only for encoders."""

    SITES: tuple[str, ...] = (*MultiHead.SITES, "summary_pattern")  # type: ignore[assignment]
    takes_prefix = False
    FUSABLE: tuple[str, ...] = ("k", "v")  # type: ignore[assignment]  # of summaries there are no queries

    def __init__(self, spec: Attention, width: int, summaries: BlockSummaries) -> None:
        super().__init__(spec, width)
        assert isinstance(spec.kernel, Softmax)
        self.kernel = BlockSummariesKernel(spec.kernel.dropout)
        self.block, self.summary_norm = summaries.block, summaries.norm.build(width)

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        q = ctx.positions.rotate_q(self.queries(x_BTD))
        k, v = ctx.positions.rotate_k(self.keys(x_BTD)), self.values(x_BTD)
        distances = ctx.positions.distances
        if distances is None and ctx.positions.in_layer(self).bias(ctx.layer, q, k) is not None:
            raise UnsupportedError(
                "attention with BlockSummaries takes no bias of pairs of tokens; choose RelativeBuckets "
                "or positions that are added to the embeddings"
            )
        view = ctx.view.restrict(self.rule)
        blocks = TextBlocks.of(view, self.block)
        summaries_RND = self.summary_norm(blocks.sums(x_BTD))
        summaries = Summaries(blocks, self.keys(summaries_RND), self.values(summaries_RND), distances)
        return self.attend(AttentionCall(q, k, v, view, scale=self.scale, summaries=summaries), ctx)


@lru_cache(maxsize=256)  # layers of a model share one spec and one shape, and `plan` calls this often
def _kernel_cost(spec: BlockSummaries, at: AttentionShape) -> PartCost:
    slots = torch.arange(at.keys, device="meta")[None]
    view = View(SlidingWindow(*at.window) if at.window else Everyone(), at.batch, slots, slots)
    blocks = TextBlocks.of(view, spec.block)
    shapes = [
        (at.batch, at.heads, at.queries, at.head_dim),
        (at.batch, at.kv_heads, at.keys, at.head_dim),
        (at.batch, at.kv_heads, at.keys, at.value_dim),
        (at.batch, at.kv_heads, blocks.most, at.head_dim),
        (at.batch, at.kv_heads, blocks.most, at.value_dim),
    ]

    def run(kernel: BlockSummariesKernel, *inputs: Tensor) -> Tensor:
        q, k, v, summary_k, summary_v = inputs
        mixed: Tensor = kernel(
            AttentionCall(q, k, v, view, summaries=Summaries(blocks, summary_k, summary_v))
        )
        return mixed

    here = {"inputs_count": "here", "outputs_count": "here"}
    return count_cost(spec, BlockSummariesKernel, run, shapes, at, **here)  # type: ignore[arg-type]


def _weights_per_head(at: AttentionShape, block: int) -> int:
    tiles = Tiles.of(at.queries, at.window)
    return tiles.count * tiles.width * (tiles.keys + at.keys // block)
