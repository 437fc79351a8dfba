"""One Transformer layer: the residual stream in, the residual stream out. Families differ in `order`:

    pre              x + f(norm(x))                 GPT-2, LLaMA
    post             norm(x + f(x))                 the original, BERT
    output           x + norm(f(x))                 OLMo 2
    normed           norm(x) + f(norm(x))           BLOOM, as an option
    sandwich         x + after(f(norm(x)))          Gemma 2
    parallel         x + f(norm(x)) + g(norm'(x))   GPT-NeoX
    parallel-shared  x + f(norm(x)) + g(norm(x))    GPT-J: one norm for both

f is self-attention, then cross-attention where there is one, then the feed-forward layer. A sub-layer `aside`
reads the stream as it comes in, and is added last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from ..spec import Rate, Spec
from .attention import Attention, TokenMixer
from .context import Context
from .feedforward import FeedForward
from .layers import Dropout
from .norm import Layer, Norm
from .positions import Positions, PositionScheme

BlockOrder = Literal["pre", "post", "output", "normed", "sandwich", "parallel", "parallel-shared"]


@dataclass(frozen=True, kw_only=True)
class Block(Spec):
    attention: TokenMixer
    feedforward: FeedForward
    norm: Norm = field(default_factory=Layer)
    attention_norm: Norm | None = None  # of the attention; None: as `norm`
    order: BlockOrder = "pre"
    cross: Attention | None = None
    dropout: Rate = 0.0  # on what each sub-layer adds to the stream
    scale: float = 1.0  # of what each sub-layer adds to the stream (Granite)
    aside: TokenMixer | None = None  # a second token mixer, of the block's input (DeBERTa v2's convolution)
    positions: Positions | None = None  # of this layer's attention; None: the tower's (Gemma 3, ModernBERT)

    @property
    def is_parallel(self) -> bool:
        """Whether every sub-layer reads the stream as it comes in."""
        return self.order in ("parallel", "parallel-shared")

    def build(self, width: int, encoder_width: int) -> BlockModule:
        return BlockModule(self, width, encoder_width)


class BlockModule(nn.Module):
    positions: PositionScheme | None  # of this layer, where not the tower's; set by the tower

    def __init__(self, spec: Block, width: int, encoder_width: int) -> None:
        super().__init__()
        self.order, self.is_parallel = spec.order, spec.is_parallel
        self.norm_first = spec.order in ("pre", "sandwich", "parallel")
        self.attn = spec.attention.build(width)
        self.attn_norm, self.attn_after = _norms(spec, width, spec.attention_norm)
        if spec.cross is not None:
            self.cross = spec.cross.build_cross(width, encoder_width)
            self.cross_norm, self.cross_after = _further_norms(spec, width)
        self.ff = spec.feedforward.build(width)
        self.ff_norm, self.ff_after = _further_norms(spec, width)
        self.has_cross = spec.cross is not None
        self.steps = ("attn", "cross", "ff") if self.has_cross else ("attn", "ff")
        if spec.aside is not None:
            self.aside = spec.aside.build(width)
            self.aside_norm, self.aside_after = _further_norms(spec, width)
            self.steps = (*self.steps, "aside")
        self.SITES = ("in", "out", *(f"{name}.stream" for name in self.steps))
        self.dropout, self.scale = Dropout(spec.dropout), spec.scale
        self.positions = None

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        x = ctx.tap("in", x_BTD)
        stream = self.attn_norm(x) if self.order == "parallel-shared" else x
        for name in self.steps:
            read = stream if self.is_parallel or name == "aside" else x
            x = self._step(name, x, read, ctx.at(name))
        return ctx.tap("out", x)

    def _step(self, name: str, x: Tensor, read: Tensor, ctx: Context) -> Tensor:
        """`x` plus the output of one sub-layer for `read`."""
        if self.order == "normed":
            x = read = getattr(self, f"{name}_norm")(x)
        added = self.sublayer(name, read, ctx)
        x = ctx.tap("stream", x) + added
        return getattr(self, f"{name}_norm")(x) if self.order == "post" else x

    def sublayer(self, name: str, read: Tensor, ctx: Context) -> Tensor:
        """The output of one sub-layer for `read`."""
        step, norm = getattr(self, name), getattr(self, f"{name}_norm")
        output = step(norm(read) if self.norm_first else read, ctx)
        if self.order == "output":
            output = norm(output)
        elif self.order == "sandwich":
            output = getattr(self, f"{name}_after")(output)
        output = output if self.scale == 1.0 else output * self.scale
        added: Tensor = self.dropout(output) if self.training else output
        return added

    def sublayer_parameters(self, name: str) -> Iterator[nn.Parameter]:
        """The parameters of one sub-layer, including its norms."""
        for part in (name, f"{name}_norm", f"{name}_after"):
            if (module := getattr(self, part)) is not None:
                yield from module.parameters()

    def forward_reversible(self, one: Tensor, two: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Two streams, each updated with a sub-layer's output for the other (see `long/reversible`)."""
        two = ctx.tap("in", two)
        one = self._step("attn", one, two, ctx.at("attn"))
        return one, ctx.tap("out", self._step("ff", two, one, ctx.at("ff")))


def _further_norms(spec: Block, width: int) -> tuple[nn.Module | None, nn.Module | None]:
    """The norms of the sub-layers after the first, which may share that of the first."""
    return (None, None) if spec.order == "parallel-shared" else _norms(spec, width)


def _norms(spec: Block, width: int, first: Norm | None = None) -> tuple[nn.Module, nn.Module | None]:
    """The norm of one sub-layer and, for sandwich order, its second norm."""
    after = spec.norm.build(width) if spec.order == "sandwich" else None
    return (first or spec.norm).build(width), after
