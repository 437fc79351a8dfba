"""Models: ids in, logits out. Towers with a head; one tower or two cover every text family.

A model never sees text, computes no loss and does not sample.
Shape suffixes: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..errors import InputError, SpecError, UnsupportedError
from ..spec import Spec
from .cache import Cache
from .context import States
from .embed import Tokens
from .heads import Head
from .init import Init, Normal, initialise
from .long.memory import Memory
from .masks import Mask
from .tap import OFF, Tap
from .tower import Stack, Tower

MaskLike = Mask | Tensor | None


class Model(Spec):
    """A whole model. `build` creates it with initial weights, `count` only counts its parameters."""

    def assemble(self) -> SingleModel | PairModel:
        raise NotImplementedError

    def starts(self) -> Init:
        raise NotImplementedError

    @property
    def towers(self) -> dict[str, Tower]:
        """The towers by their side: encoder, decoder or both."""
        raise NotImplementedError

    @property
    def max_length(self) -> int | None:
        """The longest text that every tower has positions for; None: no limit."""
        return min((t.max_length for t in self.towers.values() if t.max_length is not None), default=None)

    def empty(self) -> SingleModel | PairModel:
        """The model on torch's meta device: every shape, no memory, no randomness."""
        with torch.device("meta"):
            return self.assemble().eval()

    def build(
        self, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> SingleModel | PairModel:
        model = self.empty().to(dtype).to_empty(device=device)
        initialise(model, self.starts(), seed)
        return model

    def count(self) -> int:
        """Parameters, shared ones once. Nothing is allocated."""
        return sum(p.numel() for p in self.empty().parameters())

    def count_parts(self) -> dict[str, int]:
        """Parameters by part of the model: `{"tower.embed": ..., "tower.blocks": ..., ...}`."""
        parts: Counter[str] = Counter()
        for name, parameter in self.empty().named_parameters():
            side, part = name.split(".")[:2]
            parts[side if side in ("head", "second") else f"{side}.{part}"] += parameter.numel()
        return dict(parts)


@dataclass(frozen=True, kw_only=True)
class Single(Model):
    """One tower and a head: GPT and LLaMA when it is causal, BERT when it is not."""

    tower: Tower
    head: Head | None = None  # None: the output is the hidden states
    second: Head | None = None  # a second output, on request (BERT: does this text follow that one)
    init: Init = field(default_factory=Normal)

    def check(self) -> None:
        if self.head is not None:
            _fits(self.head, self.tower)

    @property
    def towers(self) -> dict[str, Tower]:
        return {"decoder" if self.tower.causal else "encoder": self.tower}

    def assemble(self) -> SingleModel:
        return SingleModel(self)

    def starts(self) -> Init:
        return self.init


class SingleModel(nn.Module):
    def __init__(self, spec: Single) -> None:
        super().__init__()
        self.spec, self.tower = spec, spec.tower.build()
        self.head = _build_head(spec.head, spec.tower)
        self.second = _build_head(spec.second, spec.tower)

    def forward(
        self,
        ids_BT: Tensor,
        mask: MaskLike = None,
        *,
        types: Tensor | None = None,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> Tensor:
        return self.read(self.states(ids_BT, mask, types=types, cache=cache, tap=tap))

    def states(
        self,
        ids_BT: Tensor,
        mask: MaskLike = None,
        *,
        types: Tensor | None = None,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> States:
        """The last hidden states, and which token belongs to which text; `read` applies the head."""
        states: States = self.tower(ids_BT, mask=mask, types=types, cache=cache, tap=tap.at("tower"))
        return states

    def hidden(
        self,
        ids_BT: Tensor,
        mask: MaskLike = None,
        *,
        types: Tensor | None = None,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> Tensor:
        """The last hidden states, (B, T, width)."""
        return self.states(ids_BT, mask, types=types, cache=cache, tap=tap).x_BTD

    def read(self, states: States) -> Tensor:
        """The output of the head for the states."""
        return _read(self.head, states, self.tower)

    def read_second(self, states: States) -> Tensor:
        """The output of the second head for the same states."""
        if self.second is None:
            raise InputError(
                "this model has one head; a second one is a field of its spec: Single(second=...)"
            )
        return _read(self.second, states, self.tower)

    def cache(self, capacity: int | None = None) -> Cache:
        return Cache(self.spec.tower.depth, capacity)

    def memory(self, length: int) -> Memory:
        """Memory of earlier segments of a text, at most `length` tokens (Transformer-XL)."""
        positions = self.spec.tower.positions
        if not positions.relative:
            raise UnsupportedError(
                f"{type(positions).__name__} positions count from the start of a segment; a memory needs "
                f"relative ones, such as RelativeWaves or Alibi"
            )
        return Memory(self.spec.tower.depth, length)


@dataclass(frozen=True, kw_only=True)
class Pair(Model):
    """Encoder and decoder: the original Transformer, T5, BART."""

    encoder: Tower
    decoder: Tower
    head: Head | None = None
    shared: bool = True  # encoder and decoder look ids up in one table
    init: Init = field(default_factory=Normal)

    def check(self) -> None:
        if self.head is not None:
            _fits(self.head, self.decoder)
        if not all(block.cross for block in self.decoder.pattern):
            raise SpecError("the decoder of a Pair needs cross-attention: Block(cross=Attention(...))")
        ours, theirs = self.decoder.embed, self.encoder.embed
        if self.shared and not (isinstance(ours, Tokens) and isinstance(theirs, Tokens)):
            raise SpecError("only token tables can be shared between encoder and decoder")
        if self.shared and _table(self.encoder) != _table(self.decoder):
            raise SpecError(
                f"a shared table must fit both sides; encoder {_table(self.encoder)}, decoder "
                f"{_table(self.decoder)} (vocabulary, width)"
            )

    @property
    def towers(self) -> dict[str, Tower]:
        return {"encoder": self.encoder, "decoder": self.decoder}

    def assemble(self) -> PairModel:
        return PairModel(self)

    def starts(self) -> Init:
        return self.init


class PairModel(nn.Module):
    def __init__(self, spec: Pair) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = spec.encoder.build()
        self.decoder = spec.decoder.build(memory_width=spec.encoder.out_width)
        self.head = _build_head(spec.head, spec.decoder)
        if spec.shared:
            # One module in two places, not one tensor: sharing survives moving the model between devices.
            self.encoder.embed.table = self.decoder.embed.table

    def forward(
        self,
        source_BT: Tensor,
        target_BT: Tensor,
        src_mask: MaskLike = None,
        tgt_mask: MaskLike = None,
        *,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> Tensor:
        memory = self.encode(source_BT, src_mask, tap=tap)
        return self.read(self.decode(target_BT, memory, tgt_mask, cache=cache, tap=tap))

    def hidden(
        self,
        source_BT: Tensor,
        target_BT: Tensor,
        src_mask: MaskLike = None,
        tgt_mask: MaskLike = None,
        *,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> Tensor:
        """The last hidden states of the decoder, (B, T, width)."""
        memory = self.encode(source_BT, src_mask, tap=tap)
        return self.decode(target_BT, memory, tgt_mask, cache=cache, tap=tap).x_BTD

    def encode(self, source_BT: Tensor, mask: MaskLike = None, *, tap: Tap = OFF) -> States:
        states: States = self.encoder(source_BT, mask=mask, tap=tap.at("encoder"))
        return states

    def decode(
        self,
        target_BT: Tensor,
        memory: States,
        mask: MaskLike = None,
        *,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> States:
        states: States = self.decoder(target_BT, mask=mask, memory=memory, cache=cache, tap=tap.at("decoder"))
        return states

    def read(self, states: States) -> Tensor:
        """The output of the head for the decoder's states."""
        return _read(self.head, states, self.decoder)

    def cache(self, capacity: int | None = None) -> Cache:
        return Cache(self.spec.decoder.depth, capacity)


def _fits(head: Head, tower: Tower) -> None:
    head.fits(tower.embed, tower.embed.inner(tower.width), tower.out_width)


def _build_head(head: Head | None, tower: Tower) -> nn.Module | None:
    return None if head is None else head.build(tower.out_width, tower.embed.inner(tower.width))


def _read(head: nn.Module | None, states: States, tower: Stack) -> Tensor:
    if head is None:
        return states.x_BTD
    answer: Tensor = head(states.x_BTD, states.real_BT, tower.embed.shared())
    return answer


def _table(tower: Tower) -> tuple[int, int]:
    assert isinstance(tower.embed, Tokens)
    return tower.embed.vocab, tower.embed.inner(tower.width)
