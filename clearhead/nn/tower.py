"""A tower (a stack of layers): embedding, positions, blocks, last norm. `stack.py` has the module it builds.

Encoders and decoders are towers; a model is one or two of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import SpecError
from ..spec import Count, Dims, Spec
from .block import Block
from .embed import Embed
from .long.pooling import Pooling
from .norm import Norm
from .positions import NoPositions, Positions
from .stack import Stack
from .virtual_tokens import VirtualTokens


@dataclass(frozen=True, kw_only=True)
class Tower(Spec):
    width: Count
    depth: Count
    embed: Embed
    block: Block | tuple[Block, ...]  # several: a pattern that is repeated through the depth (Gemma 2)
    positions: Positions = field(default_factory=NoPositions)
    last_norm: Norm | None = None
    last_width: Count | None = None  # of a projection after it, where the output is narrower (OPT)
    causal: bool = False
    # How many layers have weights of their own; fewer share (ALBERT: 1). Several: how often each runs.
    distinct: Count | tuple[Count, ...] | None = None
    pooling: Pooling | None = None  # some layers read a shorter sequence than those before (Funnel)
    virtual: VirtualTokens | None = None  # learned vectors before every text (prompt and prefix tuning)
    recompute: bool = False  # gradient checkpointing: less memory in training, one more forward pass
    # reversible: two streams; training keeps the activations of one layer only
    residual: Literal["plain", "reversible"] = "plain"

    def check(self) -> None:
        if isinstance(self.distinct, int) and self.depth % self.distinct:
            raise SpecError(f"distinct {self.distinct} does not divide depth {self.depth}")
        if isinstance(self.distinct, tuple) and sum(self.distinct) != self.depth:
            raise SpecError(f"distinct {self.distinct} runs {sum(self.distinct)} layers, depth {self.depth}")
        if self.pooling is not None:
            if self.causal or self.residual == "reversible" or any(b.cross for b in self.pattern):
                raise SpecError("pooling is for encoders: causal=False, residual='plain', no cross-attention")
            self.pooling.check_blocks([self.pattern[i % len(self.pattern)] for i in self.weights_of_layers])
        if self.virtual is not None:
            self.virtual.check_tower(self)
        if self.causal and self.embed.needs_whole_text:
            raise SpecError(
                "embeddings that depend on the whole text (MaskedZero) need an encoder: causal=False"
            )
        if any(b.aside for b in self.pattern) and (self.causal or self.residual == "reversible"):
            raise SpecError("a sub-layer aside is for encoders that are not reversible; no cache keeps it")
        if self.residual == "reversible" and any(b.order != "pre" or b.cross for b in self.pattern):
            raise SpecError("a reversible tower has pre-norm blocks without cross-attention")

    @property
    def weights_of_layers(self) -> tuple[int, ...]:
        """For each layer which set of weights it has; layers that share weights have the same number."""
        if isinstance(self.distinct, tuple):
            return tuple(i for i, times in enumerate(self.distinct) for _ in range(times))
        own = self.distinct or self.depth
        return tuple(i * own // self.depth for i in range(self.depth))

    @property
    def own_layers(self) -> int:
        """How many layers have weights of their own."""
        return self.weights_of_layers[-1] + 1

    @property
    def types(self) -> int:
        """How many segment types it distinguishes; 0: it takes none."""
        return max(int(getattr(self.embed, "types", 0)), self.positions.types)

    @property
    def pattern(self) -> tuple[Block, ...]:
        return self.block if isinstance(self.block, tuple) else (self.block,)

    def dims(self, block: Block | None = None) -> Dims:
        """The sizes for a position scheme: that of one block, or the one that all blocks share."""
        blocks = self.pattern if block is None else (block,)
        heads, head_dim = blocks[0].attention.sizes(self.width)
        return Dims(
            width=self.width,
            depth=self.own_layers,
            heads=heads,
            head_dim=head_dim,
            causal=self.causal,
            summaries=any(b.attention.has_summaries for b in blocks),
        )

    @property
    def max_length(self) -> int | None:
        """The longest text it has positions for; None: no limit."""
        limit = self.positions.max_length
        return limit if limit is None or self.virtual is None else limit - self.virtual.length

    @property
    def shortens(self) -> bool:
        """Whether it returns fewer states than it reads tokens."""
        return self.pooling is not None and self.pooling.restore is None

    def out_length(self, length: int) -> int:
        """How many states it returns for a text of `length` tokens."""
        return self.pooling.lengths(length, self.depth)[-1] if self.pooling and self.shortens else length

    @property
    def stream_width(self) -> int:
        """Width of what the last layer returns: two streams are concatenated."""
        return self.width * (2 if self.residual == "reversible" else 1)

    @property
    def out_width(self) -> int:
        return self.last_width or self.stream_width

    def build(self, encoder_width: int | None = None) -> Stack:
        return Stack(self, self.width if encoder_width is None else encoder_width)
