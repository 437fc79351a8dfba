"""The modules of attention: queries, keys and values from hidden states, the kernel, and back to the stream.

         x_BTD ──q──▶ q_BHQE ─┐
    source_BKD ──k──▶ k_BGKE ─┼─ kernel ─▶ mix_BHQE ──out──▶ x_BTD
    source_BKD ──v──▶ v_BGKE ─┘

The source is x itself in self-attention, and the encoder output in cross-attention.

Shape suffixes: B batch, T tokens, D width, H query heads, G key/value heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, SpecError, UnsupportedError
from .cache import KV
from .context import Context
from .head_norms import head_norm
from .kernels import AttentionCall
from .kernels.kernel import Need
from .layers import LinearLayer
from .masks import Everyone, Mask, SlidingWindow
from .tap import OFF

if TYPE_CHECKING:
    from .attention import Attention
    from .virtual_tokens import LayerPrefix


class TokenMixerModule(nn.Module):
    """The module of a `TokenMixer` spec."""

    is_replayable: ClassVar[bool] = False  # True: decode steps make the same torch calls, only sizes differ

    def require(self, needs: AbstractSet[Need]) -> None:
        """Raise an error, when the model is built, for a requirement that every call would fail on."""
        raise NotImplementedError

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        raise NotImplementedError


class MultiHead(TokenMixerModule):
    """What self- and cross-attention share: the projections to heads and back."""

    SITES = ("q", "k", "v", "pattern", "mix", "out")
    is_replayable = True  # if its kernel is
    is_latent: ClassVar[bool] = False  # whether a cache holds something else than keys and values
    cached_sizes: tuple[int, int, int]  # heads of keys and values, and their widths, as a cache holds them

    def __init__(self, spec: Attention, width: int, kv_width: int) -> None:
        super().__init__()
        self.head_dim = spec.head_width(width)
        self.value_dim = spec.value_dim or self.head_dim
        self._build_projections(spec, width, kv_width)
        self.out = LinearLayer(spec.heads * self.value_dim, width, bias="o" in spec.bias)
        self.scale = self.head_dim**-0.5 if spec.scale is None else spec.scale
        self.kernel = spec.kernel.build(spec.heads, self.head_dim)

    @property
    def takes_prefix(self) -> bool:
        """Whether keys and values may be put before those of a text."""
        return self.kernel.takes_prefix and self.kernel.cache_kind == "keys"

    def _build_projections(self, spec: Attention, width: int, kv_width: int) -> None:
        groups = spec.kv_heads or spec.heads
        self.cached_sizes = groups, self.head_dim, self.value_dim
        self.q = LinearLayer(width, spec.heads * self.head_dim, bias="q" in spec.bias)
        own_keys = spec.project != "shared"
        self.k = LinearLayer(kv_width, groups * self.head_dim, bias="k" in spec.bias) if own_keys else None
        self.v = LinearLayer(kv_width, groups * self.value_dim, bias="v" in spec.bias)
        self.q_norm = head_norm(spec, spec.heads, self.head_dim)
        self.k_norm = head_norm(spec, groups, self.head_dim)
        self.norm_first = spec.qk_norm_heads == "joint"  # before the vector is split into heads
        self.clip = spec.clip

    def require(self, needs: AbstractSet[Need]) -> None:
        self.kernel.require(needs)

    def queries(self, x_BTD: Tensor) -> Tensor:
        return self._normed_heads(self._clipped(self.q(x_BTD)), self.q_norm)

    def keys(self, x_BTD: Tensor) -> Tensor:
        if self.k is None:
            return F.rms_norm(self.queries(x_BTD), (self.head_dim,), eps=1e-6)
        return self._normed_heads(self._clipped(self.k(x_BTD)), self.k_norm)

    def values(self, x_BTD: Tensor) -> Tensor:
        return split_heads(self._clipped(self.v(x_BTD)), self.value_dim)

    def _clipped(self, x_BTD: Tensor) -> Tensor:
        return x_BTD if self.clip is None else x_BTD.clamp(-self.clip, self.clip)

    def _normed_heads(self, x_BTD: Tensor, norm: nn.Module | None) -> Tensor:
        if norm is None or self.norm_first:
            return split_heads(x_BTD if norm is None else norm(x_BTD), self.head_dim)
        # Heads are swapped with tokens last: the output of attention then has the layout of its projection.
        x_BTHE: Tensor = norm(x_BTD.reshape(*x_BTD.shape[:2], -1, self.head_dim))
        return x_BTHE.transpose(1, 2)

    def attend(self, call: AttentionCall, ctx: Context) -> Tensor:
        """The kernel, and the projection of its output."""
        tap = ctx.tap
        if tap is not OFF:
            q, k, v = tap("q", call.q_BHQE), tap("k", call.k_BHKE), tap("v", call.v_BHKE)
            call = replace(call, q_BHQE=q, k_BHKE=k, v_BHKE=v)
        # A kernel with a running state caches that state; for the encoder output, keys are cached instead.
        if ctx.cache is not None and self.kernel.cache_kind == "state" and not call.view.is_cross:
            mixed, ctx.cache.state = self.kernel.step(call, ctx.cache.state, tap)
        else:
            mixed = self.kernel(call, tap)
        out: Tensor = self.out(tap("mix", mixed).transpose(1, 2).flatten(2))
        return tap("out", out)


class SelfAttention(MultiHead):
    """Queries, keys and values from one stream."""

    FUSABLE = ("q", "k", "v")  # layers with the same input: inference may fuse them into one product

    def __init__(self, spec: Attention, width: int) -> None:
        super().__init__(spec, width, width)
        self.rule: Mask = SlidingWindow(*spec.window) if spec.window else Everyone()
        if spec.window:
            self.require({"window"})
        self.twice = spec.project == "twice"
        if self.twice:
            groups = spec.kv_heads or spec.heads
            self.q_global = LinearLayer(width, spec.heads * self.head_dim, bias="q" in spec.bias)
            self.k_global = LinearLayer(width, groups * self.head_dim, bias="k" in spec.bias)
            self.v_global = LinearLayer(width, groups * self.value_dim, bias="v" in spec.bias)

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        q = ctx.positions.rotate_q(self.queries(x_BTD))
        # Pooled queries attend to the tokens before pooling.
        source_BKD = x_BTD if ctx.source is None else ctx.source
        if ctx.cache is not None:
            # With a segment memory, keys and values also come from the states of earlier segments.
            source_BKD = ctx.cache.kv_inputs(source_BKD)
        k, v = ctx.positions.rotate_k(self.keys(source_BKD)), self.values(source_BKD)
        if ctx.prefix is not None:
            k, v = ctx.prefix.join(k, v)
        if ctx.cache is not None and self.kernel.cache_kind == "keys":
            k, v = ctx.cache.append(k, v)
        bias = ctx.positions.in_layer(self).bias(ctx.layer, q, k)
        call = AttentionCall(q, k, v, ctx.view.restrict(self.rule), bias, self.scale)
        if self.twice:
            call = replace(call, second=partial(self._second, x_BTD, ctx, call))
        return self.attend(call, ctx)

    def _second(self, x_BTD: Tensor, ctx: Context, call: AttentionCall) -> AttentionCall:
        """The same call with the projections of global tokens."""
        if ctx.cache is not None:
            raise UnsupportedError("global tokens with their own projections cannot be decoded with a cache")
        q, k = (split_heads(project(x_BTD), self.head_dim) for project in (self.q_global, self.k_global))
        v = split_heads(self.v_global(x_BTD), self.value_dim)
        if ctx.prefix is not None:
            k, v = ctx.prefix.join(k, v)
        return replace(call, q_BHQE=q, k_BHKE=k, v_BHKE=v)


class CrossAttention(MultiHead):
    """Queries from the stream; keys and values from the encoder output, projected once per decoding run."""

    FUSABLE = ("k", "v")

    def __init__(self, spec: Attention, width: int, kv_width: int) -> None:
        if spec.window is not None:
            raise SpecError("a window counts tokens within one text: cross-attention cannot have one")
        if spec.project != "each":
            raise SpecError(f"project={spec.project!r} is for self-attention; cross-attention projects each")
        if spec.kernel.one_text:
            raise SpecError(
                f"{type(spec.kernel).__name__} attention is for tokens of one text; "
                f"give cross-attention another kernel, such as Softmax"
            )
        super().__init__(spec, width, kv_width)
        self.require({"uneven"})

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        if ctx.encoder_output is None or ctx.encoder_view is None:
            raise InputError("this tower has cross-attention; call it with encoder_output=")
        # Rows that share a source (beams) become more queries of one row: its keys are held and read once.
        q = self.queries(x_BTD.reshape(len(ctx.encoder_output), -1, x_BTD.shape[-1]))
        keys_and_values = partial(self._keys_and_values, ctx.encoder_output, ctx.cross_prefix)
        kv = keys_and_values() if ctx.cache is None else ctx.cache.cross(keys_and_values)
        call = AttentionCall(q, *kv, ctx.encoder_view, None, self.scale)
        return self.attend(call, ctx).reshape_as(x_BTD)

    def _keys_and_values(self, encoder_output_BKD: Tensor, prefix: LayerPrefix | None) -> KV:
        k, v = self.keys(encoder_output_BKD), self.values(encoder_output_BKD)
        return (k, v) if prefix is None else prefix.join(k, v)


def split_heads(x_BTD: Tensor, head_dim: int) -> Tensor:
    """(B, T, H * E) -> (B, H, T, E)."""
    batch, tokens, width = x_BTD.shape
    return x_BTD.reshape(batch, tokens, width // head_dim, head_dim).transpose(1, 2)
