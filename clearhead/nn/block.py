"""One Transformer layer: the residual stream in, the residual stream out. Families differ in `order`:

    pre       x + f(norm(x))                 GPT-2, LLaMA
    post      norm(x + f(x))                 the original, BERT
    sandwich  x + after(f(norm(x)))          Gemma 2
    parallel  x + f(norm(x)) + g(norm'(x))   GPT-NeoX

f is self-attention, then cross-attention where there is one, then the feed-forward layer.
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

Order = Literal["pre", "post", "sandwich", "parallel"]


@dataclass(frozen=True, kw_only=True)
class Block(Spec):
    attention: TokenMixer
    feedforward: FeedForward
    norm: Norm = field(default_factory=Layer)
    order: Order = "pre"
    cross: Attention | None = None
    dropout: Rate = 0.0  # on what each sub-layer adds to the stream

    def build(self, width: int, encoder_width: int) -> BlockModule:
        return BlockModule(self, width, encoder_width)


class BlockModule(nn.Module):
    def __init__(self, spec: Block, width: int, encoder_width: int) -> None:
        super().__init__()
        self.order = spec.order
        self.attn = spec.attention.build(width)
        self.attn_norm, self.attn_after = _norms(spec, width)
        if spec.cross is not None:
            self.cross = spec.cross.build_cross(width, encoder_width)
            self.cross_norm, self.cross_after = _norms(spec, width)
        self.ff = spec.feedforward.build(width)
        self.ff_norm, self.ff_after = _norms(spec, width)
        self.has_cross = spec.cross is not None
        self.steps = ("attn", "cross", "ff") if self.has_cross else ("attn", "ff")
        self.SITES = ("in", "out", *(f"{name}.stream" for name in self.steps))
        self.dropout = Dropout(spec.dropout)

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        x = stream = ctx.tap("in", x_BTD)
        for name in self.steps:
            # In a parallel block every step reads the stream as it came in.
            x = self._step(name, x, stream if self.order == "parallel" else x, ctx.at(name))
        return ctx.tap("out", x)

    def _step(self, name: str, x: Tensor, read: Tensor, ctx: Context) -> Tensor:
        """`x` plus the output of one sub-layer for `read`."""
        added = self.sublayer(name, read, ctx)
        x = ctx.tap("stream", x) + added
        return getattr(self, f"{name}_norm")(x) if self.order == "post" else x

    def sublayer(self, name: str, read: Tensor, ctx: Context) -> Tensor:
        """The output of one sub-layer for `read`."""
        step, norm = getattr(self, name), getattr(self, f"{name}_norm")
        output = step(read if self.order == "post" else norm(read), ctx)
        if self.order == "sandwich":
            output = getattr(self, f"{name}_after")(output)
        added: Tensor = self.dropout(output) if self.training else output
        return added

    def sublayer_parameters(self, name: str) -> Iterator[nn.Parameter]:
        """The parameters of one sub-layer, including its norms."""
        for part in (name, f"{name}_norm", f"{name}_after"):
            if getattr(self, part) is not None:
                yield from getattr(self, part).parameters()

    def forward_reversible(self, one: Tensor, two: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Two streams, each updated with a sub-layer's output for the other (see `long/reversible`)."""
        two = ctx.tap("in", two)
        one = self._step("attn", one, two, ctx.at("attn"))
        return one, ctx.tap("out", self._step("ff", two, one, ctx.at("ff")))


def _norms(spec: Block, width: int) -> tuple[nn.Module, nn.Module | None]:
    """The norm of one sub-layer and, for sandwich order, its second norm."""
    after = spec.norm.build(width) if spec.order == "sandwich" else None
    return spec.norm.build(width), after
