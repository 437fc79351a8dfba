"""Attention: hidden states in; project to heads, let a kernel weight the values, project back.

         x_BTD ──q──▶ q_BHQE ─┐
    source_BKD ──k──▶ k_BGKE ─┼─ kernel ─▶ mix_BHQE ──out──▶ x_BTD
    source_BKD ──v──▶ v_BGKE ─┘

The source is x itself in self-attention, and the encoder output in cross-attention.

Shape suffixes: B batch, T tokens, D width, H query heads, G key/value heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, SpecError, UnsupportedError
from ..spec import Amount, Count, Positive, Spec
from .cache import KV
from .context import Context, context_of
from .cost import AttentionShape, HiddenShape, PartCost, PositionCost, Rule, linear_cost
from .counting import count_cost
from .kernels import AttentionCall, AttentionKernel, Softmax
from .kernels.kernel import Need
from .layers import LinearLayer
from .masks import Causal, Everyone, Mask, SlidingWindow
from .norm import Norm
from .tap import OFF

QKNormHeads = Literal["shared", "each", "joint"]


class TokenMixer(Spec):
    """Spec of the layer that moves information between tokens: attention, or a baseline from `mixers`."""

    def build(self, width: int) -> TokenMixerModule:
        raise NotImplementedError

    def sizes(self, width: int) -> tuple[int, int]:
        """Number of heads and width of one, for the position scheme."""
        return 1, width

    @property
    def has_summaries(self) -> bool:
        """Whether tokens also attend to summaries of blocks, so that there are distances in blocks."""
        return False

    def state(self, width: int) -> int:
        """Size of the state that it caches per sequence, in numbers; independent of the length."""
        return 0

    def cost(self, shape: HiddenShape, *, causal: bool, positions: PositionCost) -> PartCost:
        """The cost without that of keeping its input, which the block counts.

        A token mixer without a formula is measured on the meta device; position schemes do not affect it.
        """
        size = (shape.batch, shape.length, shape.width)
        run = lambda module, x: module(x, context_of(x, Causal() if causal else None))  # noqa: E731
        return count_cost(self, lambda: self.build(shape.width), run, [size], shape)


class TokenMixerModule(nn.Module):
    """The module of a `TokenMixer` spec."""

    is_replayable: ClassVar[bool] = False  # True: decode steps make the same torch calls, only sizes differ

    def require(self, needs: AbstractSet[Need]) -> None:
        """Raise an error, when the model is built, for a requirement that every call would fail on."""
        raise NotImplementedError

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        raise NotImplementedError


class Projection(Spec):
    """How queries, keys and values are computed, where that is not one linear layer each."""

    has_summaries: ClassVar[bool] = False  # whether queries also attend to summaries of blocks of tokens

    def check_attention(self, attention: Attention) -> None:
        """Raise a one-line error for an attention that cannot have it."""

    def build(self, attention: Attention, width: int) -> MultiHead:
        raise NotImplementedError

    def rotated_width(self, head_width: int) -> int:
        """How many channels of a head the position scheme gets."""
        return head_width

    def cached(self, batch: int, keys: int) -> int:
        """How many numbers the KV cache of a layer holds."""
        raise NotImplementedError

    def cost(self, attention: Attention, shape: HiddenShape, at: AttentionShape) -> PartCost:
        """The cost of queries, keys and values."""
        raise NotImplementedError

    def kernel_cost(self, attention: Attention, at: AttentionShape) -> PartCost:
        """The cost of what is done with them."""
        return attention.kernel.cost(at)


@dataclass(frozen=True, kw_only=True)
class Attention(TokenMixer):
    """Multi-head attention.

    `bias` names the projections that have one: "qkvo" (GPT-2), "qvo" (Whisper), "" (LLaMA).
    `project` is "each" (separate q, k and v), "shared" (the keys are the normalised queries; Reformer),
    "twice" (global tokens have a second set of q, k and v; Longformer), or a `Projection`.
    `qk_norm_heads` is "shared" (each head is normalised by itself, with the same weights), "each" (with
    weights of its own; StableLM) or "joint" (all heads are normalised as one vector; OLMo 2).
    """

    heads: Count
    kv_heads: Count | None = None  # fewer than heads: several queries share a key (Ainslie 2023)
    head_dim: Count | None = None  # None: width / heads
    value_dim: Count | None = None  # None: as head_dim
    bias: str = ""
    scale: float | None = None  # None: head_dim ** -0.5
    qk_norm: Norm | None = None  # on q and k (Qwen 3)
    qk_norm_heads: QKNormHeads = "shared"
    clip: Positive | None = None  # q, k and v are limited to -clip ... clip (OLMo)
    window: tuple[Amount, Amount] | None = None  # attend to at most this many tokens back, and ahead
    project: Literal["each", "shared", "twice"] | Projection = "each"
    kernel: AttentionKernel = field(default_factory=Softmax)

    def check(self) -> None:
        if self.heads % (self.kv_heads or self.heads):
            raise SpecError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if self.project == "shared" and ((self.kv_heads or self.heads) != self.heads or "k" in self.bias):
            raise SpecError("project='shared' computes k from q: leave kv_heads unset and 'k' out of bias")
        if self.project == "twice" and (self.qk_norm is not None or self.clip is not None):
            raise SpecError("project='twice' has neither qk_norm nor clip: leave them unset")
        if isinstance(self.project, Projection):
            self.project.check_attention(self)
        if set(self.bias) - set("qkvo"):
            raise SpecError(f"Attention.bias is {self.bias!r}, expected some of the letters q, k, v, o")

    def head_width(self, width: int) -> int:
        if self.head_dim is None and width % self.heads:
            raise SpecError(
                f"width {width} is not divisible by heads {self.heads}; choose another, or set head_dim"
            )
        return self.head_dim or width // self.heads

    def sizes(self, width: int) -> tuple[int, int]:
        if isinstance(self.project, Projection):
            return self.heads, self.project.rotated_width(self.head_width(width))
        return self.heads, self.head_width(width)

    @property
    def has_summaries(self) -> bool:
        return isinstance(self.project, Projection) and self.project.has_summaries

    def cached(self, width: int, batch: int, keys: int) -> int:
        """How many numbers the KV cache of a layer holds at `keys` keys."""
        if isinstance(self.project, Projection):
            return self.project.cached(batch, keys)
        return self.kernel.cached(self.call_shape(width, batch, 1, keys))

    def call_shape(self, width: int, batch: int, queries: int, keys: int) -> AttentionShape:
        """The sizes of one call of the kernel."""
        head_dim = self.head_width(width)
        return AttentionShape(
            batch=batch,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            queries=queries,
            keys=keys,
            head_dim=head_dim,
            value_dim=self.value_dim or head_dim,
        )

    def cost(self, shape: HiddenShape, *, causal: bool, positions: PositionCost) -> PartCost:
        """Self-attention: four projections and the kernel between them."""
        rule: Rule = "mask" if self.window else "causal" if causal else "open"
        at = replace(
            self.call_shape(shape.width, shape.batch, shape.length, shape.length),
            rule=rule,
            window=self.window,
            causal=causal,
            bias=positions.bias,
            joined=positions.joined or isinstance(self.project, Projection),
        )
        cost = self._cost(shape, shape, at) + positions.layer
        if self.project == "twice":
            second = _projections_cost(self, shape, shape, at)
            # They are computed for global tokens only; here, only the kernel knows whether there are any.
            used = bool(getattr(self.kernel, "always", ()))
            cost += second if used else PartCost(parameters=second.parameters)
        return cost

    def cross_cost(self, shape: HiddenShape, encoder: HiddenShape) -> PartCost:
        """Cross-attention: keys and values are computed from the encoder output."""
        at = self.call_shape(shape.width, shape.batch, shape.length, encoder.length)
        return self._cost(shape, encoder, at)

    def _cost(self, shape: HiddenShape, source: HiddenShape, at: AttentionShape) -> PartCost:
        at = replace(at, training=shape.training, number=shape.number, device=shape.device)
        heads = replace(shape, length=shape.length * at.heads, width=at.head_dim)
        kv_heads = replace(source, length=source.length * at.kv_heads, width=at.head_dim)
        values = replace(source, length=source.length * at.kv_heads, width=at.value_dim)
        own = self.project if isinstance(self.project, Projection) else None
        cost = (
            _projections_cost(self, shape, source, at)
            + linear_cost(shape.vectors, at.heads * at.value_dim, shape.width, bias="o" in self.bias)
            + (self.kernel.cost(at) if own is None else own.kernel_cost(self, at))
        )
        if self.project == "shared":  # the input of the norm of the keys, and one root per key
            cost += PartCost(saved=heads.bytes + 4 * heads.vectors)
        if self.clip is not None:  # which numbers were within the limits is found in those before
            cost += PartCost(saved=heads.bytes + kv_heads.bytes + values.bytes)
        if self.qk_norm is not None:
            for x, count in ((heads, at.heads), (kv_heads, at.kv_heads)):
                cost += self._qk_norm_cost(self.qk_norm, x, count) + PartCost(saved=x.bytes)
        return cost

    def _qk_norm_cost(self, norm: Norm, shape: HiddenShape, heads: int) -> PartCost:
        """`shape` has a vector for each token and head."""
        if self.qk_norm_heads == "joint":
            return norm.cost(replace(shape, length=shape.length // heads, width=shape.width * heads))
        cost = norm.cost(shape)
        return replace(cost, parameters=cost.parameters * (heads if self.qk_norm_heads == "each" else 1))

    def build(self, width: int) -> MultiHead:
        if isinstance(self.project, Projection):
            return self.project.build(self, width)
        return SelfAttention(self, width)

    def build_cross(self, width: int, encoder_width: int) -> MultiHead:
        return CrossAttention(self, width, encoder_width)


class MultiHead(TokenMixerModule):
    """What self- and cross-attention share: the projections to heads and back."""

    SITES = ("q", "k", "v", "pattern", "mix", "out")
    is_replayable = True  # if its kernel is

    def __init__(self, spec: Attention, width: int, kv_width: int) -> None:
        super().__init__()
        self.head_dim = spec.head_width(width)
        self.value_dim = spec.value_dim or self.head_dim
        self._build_projections(spec, width, kv_width)
        self.out = LinearLayer(spec.heads * self.value_dim, width, bias="o" in spec.bias)
        self.scale = self.head_dim**-0.5 if spec.scale is None else spec.scale
        self.kernel = spec.kernel.build(spec.heads, self.head_dim)

    def _build_projections(self, spec: Attention, width: int, kv_width: int) -> None:
        groups = spec.kv_heads or spec.heads
        self.q = LinearLayer(width, spec.heads * self.head_dim, bias="q" in spec.bias)
        own_keys = spec.project != "shared"
        self.k = LinearLayer(kv_width, groups * self.head_dim, bias="k" in spec.bias) if own_keys else None
        self.v = LinearLayer(kv_width, groups * self.value_dim, bias="v" in spec.bias)
        self.q_norm = _head_norm(spec, spec.heads, self.head_dim)
        self.k_norm = _head_norm(spec, groups, self.head_dim)
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
        keys_and_values = partial(self._keys_and_values, ctx.encoder_output)
        kv = keys_and_values() if ctx.cache is None else ctx.cache.cross(keys_and_values)
        call = AttentionCall(q, *kv, ctx.encoder_view, None, self.scale)
        return self.attend(call, ctx).reshape_as(x_BTD)

    def _keys_and_values(self, encoder_output_BKD: Tensor) -> KV:
        return self.keys(encoder_output_BKD), self.values(encoder_output_BKD)


class HeadNorms(nn.ModuleList):
    """A norm for each head, with weights of its own."""

    def forward(self, x_BTHE: Tensor) -> Tensor:
        return torch.stack([norm(x_BTE) for norm, x_BTE in zip(self, x_BTHE.unbind(2), strict=True)], dim=2)


def _head_norm(spec: Attention, heads: int, head_dim: int) -> nn.Module | None:
    if spec.qk_norm is None:
        return None
    if spec.qk_norm_heads == "each":
        return HeadNorms(spec.qk_norm.build(head_dim) for _ in range(heads))
    return spec.qk_norm.build(heads * head_dim if spec.qk_norm_heads == "joint" else head_dim)


def _projections_cost(
    spec: Attention, shape: HiddenShape, source: HiddenShape, at: AttentionShape
) -> PartCost:
    """The cost of q, k and v; with shared keys the query projection is computed a second time."""
    if isinstance(spec.project, Projection):
        return spec.project.cost(spec, shape, at)
    return linear_projections_cost(spec, shape, source, at)


def linear_projections_cost(
    spec: Attention, shape: HiddenShape, source: HiddenShape, at: AttentionShape
) -> PartCost:
    q = linear_cost(shape.vectors, shape.width, at.heads * at.head_dim, bias="q" in spec.bias)
    k = linear_cost(source.vectors, source.width, at.kv_heads * at.head_dim, bias="k" in spec.bias)
    v = linear_cost(source.vectors, source.width, at.kv_heads * at.value_dim, bias="v" in spec.bias)
    return q + (replace(k, parameters=0) if spec.project == "shared" else k) + v


def split_heads(x_BTD: Tensor, head_dim: int) -> Tensor:
    """(B, T, H * E) -> (B, H, T, E)."""
    batch, tokens, width = x_BTD.shape
    return x_BTD.reshape(batch, tokens, width // head_dim, head_dim).transpose(1, 2)
