"""Specs of attention: how queries, keys and values are computed, and which kernel weights the values.

`multi_head.py` has the modules that they build.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from ..errors import SpecError
from ..spec import Amount, Count, Positive, Spec
from .context import context_of
from .cost import AttentionShape, HiddenShape, PartCost, PositionCost, Rule, linear_cost
from .counting import count_cost
from .kernels import AttentionKernel, Softmax
from .masks import Causal
from .multi_head import CrossAttention, MultiHead, SelfAttention, TokenMixerModule
from .norm import Norm

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

    def cached_per_token(self, width: int) -> int:
        """How many numbers a cache keeps of one token; 0 if it keeps a state instead."""
        return 0

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

    def cached_per_token(self, width: int) -> int:
        if isinstance(self.project, Projection):
            return self.project.cached(1, 1)
        head_dim = self.head_width(width)
        return (self.kv_heads or self.heads) * (head_dim + (self.value_dim or head_dim))

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
        masked = self.window or (causal and shape.lead)
        rule: Rule = "mask" if masked else "causal" if causal else "open"
        at = replace(
            self.call_shape(shape.width, shape.batch, shape.length, shape.keys),
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
        at = self.call_shape(shape.width, shape.batch, shape.length, encoder.keys)
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
