"""Multi-head latent attention (DeepSeek-V2): keys and values come from one short vector per token.

                 x_BTD ──kv_down──▶ latent_BTC, rotated_BTR      the cache keeps these two
            latent_BTC ──kv_up────▶ keys and values of every head

Shape suffixes: B batch, T tokens, D width, C the rank, R rotated channels, H heads, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..errors import SpecError
from ..spec import Count
from .attention import Attention, Projection
from .context import Context
from .cost import AttentionShape, HiddenShape, PartCost, linear_cost
from .kernels import AttentionCall, SoftmaxKernel
from .layers import LinearLayer
from .multi_head import MultiHead, SelfAttention, split_heads
from .norm import RMS, Norm
from .view import View


@dataclass(frozen=True, kw_only=True)
class Latent(Projection):
    """Keys and values from a vector of `rank` numbers, which is all that a cache keeps of a token, with a
    key of `rotated` numbers that all heads share: rotary positions would not survive the projection.
    """

    rank: Count
    rotated: Count  # how many channels of a head are rotated; its other channels come from the short vector
    query_rank: Count | None = None  # queries come from a short vector as well
    norm: Norm = field(default_factory=RMS)  # of the short vectors
    bias: bool = False  # of the layers that compute the short vectors

    def check_attention(self, attention: Attention) -> None:
        grouped = (attention.kv_heads or attention.heads) != attention.heads
        if grouped or attention.qk_norm or attention.clip or set(attention.bias) - {"o"}:
            raise SpecError(
                "project=Latent: leave kv_heads, qk_norm, clip and the biases of q, k and v unset"
            )
        if attention.head_dim is None or attention.head_dim <= self.rotated:
            raise SpecError(
                f"project=Latent: head_dim is {attention.head_dim}, expected more than the {self.rotated} "
                f"rotated channels"
            )

    def build(self, attention: Attention, width: int) -> MultiHead:
        return LatentAttention(attention, width)

    def rotated_width(self, head_width: int) -> int:
        return self.rotated

    def cached(self, batch: int, keys: int) -> int:
        return batch * keys * (self.rank + self.rotated)

    def cost(self, attention: Attention, shape: HiddenShape, at: AttentionShape) -> PartCost:
        """Queries, the short vectors, and from these the keys and values of every head."""
        inner, plain = self.query_rank or shape.width, at.head_dim - self.rotated
        short = replace(shape, width=self.rank)
        cost = linear_cost(shape.vectors, inner, at.heads * at.head_dim, bias=False)
        if self.query_rank is not None:
            query = replace(shape, width=self.query_rank)
            cost += linear_cost(shape.vectors, shape.width, query.width, bias=self.bias)
            cost += self.norm.cost(query) + PartCost(saved=2 * query.bytes)
        cost += linear_cost(shape.vectors, shape.width, self.rank + self.rotated, bias=self.bias)
        cost += linear_cost(at.batch * at.keys, self.rank, at.heads * (plain + at.value_dim), bias=False)
        # Values are a part of what `kv_up` computes, and the short vector of what `kv_down` does.
        whole = shape.number * shape.vectors * (at.heads * plain + self.rotated)
        return cost + self.norm.cost(short) + PartCost(saved=2 * short.bytes + whole)


class LatentAttention(SelfAttention):
    """Self-attention whose keys and values come from one short vector per token.

         x_BTD ──kv_down──▶ latent_BTC, rotated_BTR      the cache keeps these two
    latent_BTC ──kv_up────▶ keys and values of every head
    """

    is_latent = True
    FUSABLE: tuple[str, ...] = ("q", "kv_down")  # type: ignore[assignment]

    def _build_projections(self, spec: Attention, width: int, kv_width: int) -> None:
        latent = spec.project
        assert isinstance(latent, Latent)
        self.rank, self.rotated, self.plain = latent.rank, latent.rotated, self.head_dim - latent.rotated
        self.cached_sizes = 1, self.rotated, self.rank
        self.q_down = self.q_down_norm = None
        if latent.query_rank is not None:
            self.q_down = LinearLayer(width, latent.query_rank, bias=latent.bias)
            self.q_down_norm = latent.norm.build(latent.query_rank)
            self.FUSABLE = ("q_down", "kv_down")
        self.q = LinearLayer(latent.query_rank or width, spec.heads * self.head_dim, bias=False)
        self.kv_down = LinearLayer(width, latent.rank + latent.rotated, bias=latent.bias)
        self.kv_down_norm = latent.norm.build(latent.rank)
        self.kv_up = LinearLayer(latent.rank, spec.heads * (self.plain + self.value_dim), bias=False)

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        q = x_BTD
        if self.q_down is not None and self.q_down_norm is not None:
            q = self.q_down_norm(self.q_down(x_BTD))
        q_heads = split_heads(self.q(q), self.head_dim)
        q, q_rotated = torch.split(q_heads, [self.plain, self.rotated], dim=-1)
        q_rotated = ctx.positions.rotate_q(q_rotated)
        source_BKD = x_BTD if ctx.cache is None else ctx.cache.kv_inputs(x_BTD)
        latent, k_rotated = torch.split(self.kv_down(source_BKD), [self.rank, self.rotated], dim=-1)
        # One head that all queries share, so that a cache holds it like any other keys and values.
        latent, k_rotated = self.kv_down_norm(latent)[:, None], ctx.positions.rotate_k(k_rotated[:, None])
        if ctx.prefix is not None:
            k_rotated, latent = ctx.prefix.join(k_rotated, latent)
        if ctx.cache is not None and self.kernel.cache_kind == "keys":
            k_rotated, latent = ctx.cache.append(k_rotated, latent)
        view = ctx.view.restrict(self.rule)
        few = view.queries < view.keys and ctx.prefix is None and not self.kv_up.differs_by_row
        if few and isinstance(self.kernel, SoftmaxKernel):
            return self._attend_latent(q, q_rotated, latent, k_rotated, view, ctx)
        up = split_heads(self.kv_up(latent[:, 0]), self.plain + self.value_dim)
        k, v = torch.split(up, [self.plain, self.value_dim], dim=-1)
        k = torch.cat([k, k_rotated.expand(-1, k.shape[1], -1, -1)], dim=-1)
        q = torch.cat([q, q_rotated], dim=-1)
        bias = ctx.positions.bias(ctx.layer, q, k)
        return self.attend(AttentionCall(q, k, v, view, bias, self.scale), ctx)

    def _attend_latent(
        self, q: Tensor, q_rotated: Tensor, latent: Tensor, k_rotated: Tensor, view: View, ctx: Context
    ) -> Tensor:
        """The same for few queries and many keys, without computing the keys and values of every head.

        A score is q . (W_k c) = (W_k' q) . c, and a sum of values W_v c is W_v times the sum of c: attention
        is over the short vectors c themselves, as if they were the keys and values of one shared head.
        """
        up_HEC = self.kv_up.matrix.view(-1, self.plain + self.value_dim, self.rank).to(q.dtype)
        k_up, v_up = torch.split(up_HEC, [self.plain, self.value_dim], dim=1)
        q = torch.cat([q @ k_up, q_rotated], dim=-1)
        k = torch.cat([latent, k_rotated], dim=-1)
        bias = ctx.positions.bias(ctx.layer, q, k)
        mixed = self.kernel(AttentionCall(q, k, latent, view, bias, self.scale), ctx.tap)
        out: Tensor = self.out(ctx.tap("mix", mixed @ v_up.mT).transpose(1, 2).flatten(2))
        return ctx.tap("out", out)
