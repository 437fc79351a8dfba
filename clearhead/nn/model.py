"""Models: ids in, logits out. What all kinds share, and the kind with one tower; see `encoder_decoder`.

A model never sees text, computes no loss and does not sample.
Shape suffixes: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, UnsupportedError
from ..spec import Spec
from .cache import Cache
from .context import States
from .heads import Head, WordHead
from .init import Init, Normal, initialise
from .long.memory import Memory
from .masks import Mask
from .tap import OFF, Tap
from .tower import Stack, Tower

MaskLike = Mask | Tensor | None


class Model(Spec):
    """A whole model. `build` creates it with initial weights, `count` only counts its parameters."""

    head: Head | None = None  # kinds without a head answer with their hidden states
    second: Head | None = None
    shared: bool = False  # its towers look ids up in one table

    def assemble(self) -> TransformerModel:
        raise NotImplementedError

    def starts(self) -> Init:
        raise NotImplementedError

    @property
    def towers(self) -> dict[str, Tower]:
        """The towers by their side: encoder, decoder or both. A call takes one input for each."""
        raise NotImplementedError

    @property
    def tower_fields(self) -> dict[str, Tower]:
        """The towers by their names as fields, which are also their addresses in the built model."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tower)}

    @property
    def head_tower(self) -> Tower:
        """The tower whose hidden states the head reads."""
        return list(self.towers.values())[-1]

    @property
    def source_tower(self) -> Tower | None:
        """The encoder whose output the decoder attends to; None: a prompt goes into the decoder itself."""
        return None

    @property
    def is_encoder_decoder(self) -> bool:
        return self.source_tower is not None

    @property
    def decodes(self) -> bool:
        """Whether tokens follow from those before them, so that steps can be cached."""
        return self.head_tower.causal

    @property
    def generates(self) -> bool:
        """Whether it generates text token by token."""
        return self.decodes and isinstance(self.head, WordHead)

    @property
    def max_length(self) -> int | None:
        """The longest text that every tower has positions for; None: no limit."""
        return min((t.max_length for t in self.towers.values() if t.max_length is not None), default=None)

    def empty(self) -> TransformerModel:
        """The model on torch's meta device: every shape, no memory, no randomness."""
        with torch.device("meta"):
            return self.assemble().eval()

    def build(
        self, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> TransformerModel:
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


class TransformerModel(nn.Module):
    """A built model, of any kind. A call takes one input for each tower, with masks, and what `states` takes;
    it returns what the head computes, or the last hidden states if there is no head."""

    spec: Model
    head: nn.Module | None
    second: nn.Module | None

    @property
    def stacks(self) -> dict[str, Stack]:
        """The towers by the names they have in the addresses of taps."""
        return {name: getattr(self, name) for name in self.spec.tower_fields}

    @property
    def head_stack(self) -> Stack:
        """The tower whose states the head reads."""
        return list(self.stacks.values())[-1]

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        return self.read(self.states(*inputs, **options))

    def states(self, *inputs: Any, **options: Any) -> States:
        """The last hidden states, and which token is of which text; `read` takes them to the head."""
        raise NotImplementedError

    def hidden(self, *inputs: Any, **options: Any) -> Tensor:
        """The last hidden states, (B, T, width)."""
        return self.states(*inputs, **options).x_BTD

    def encode(self, source_BT: Tensor, mask: MaskLike = None, *, tap: Tap = OFF) -> States:
        """The encoder output, which `decode` takes."""
        raise InputError("this model has no encoder beside its decoder; put the whole prompt in ids")

    def decode(
        self,
        ids_BT: Tensor,
        encoder_output: States | None = None,
        mask: MaskLike = None,
        *,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> States:
        """The last hidden states of the tower that decodes, for these tokens after those in the cache."""
        raise InputError("this model does not decode")

    def read(self, states: States) -> Tensor:
        """What the head computes from the states."""
        return _read(self.head, states, self.head_stack)

    def read_second(self, states: States) -> Tensor:
        """What the second head computes from the same states."""
        if self.spec.second is None:
            raise InputError(
                "this model has one head; a second one is a field of its spec: SingleStack(second=...)"
            )
        return _read(self.second, states, self.head_stack)

    def cache(self, capacity: int | None = None) -> Cache:
        return Cache(self.spec.head_tower.depth, capacity)


@dataclass(frozen=True, kw_only=True)
class SingleStack(Model):
    """One tower and a head: GPT and LLaMA when it is causal, BERT when it is not."""

    tower: Tower
    head: Head | None = None  # None: the output is the hidden states
    second: Head | None = None  # a second output, on request (BERT: does this text follow that one)
    init: Init = field(default_factory=Normal)

    def check(self) -> None:
        if self.head is not None:
            check_head(self.head, self.tower)

    @property
    def towers(self) -> dict[str, Tower]:
        return {"decoder" if self.tower.causal else "encoder": self.tower}

    def assemble(self) -> SingleStackModel:
        return SingleStackModel(self)

    def starts(self) -> Init:
        return self.init


class SingleStackModel(TransformerModel):
    spec: SingleStack

    def __init__(self, spec: SingleStack) -> None:
        super().__init__()
        self.spec, self.tower = spec, spec.tower.build()
        self.head = build_head(spec.head, spec.tower)
        self.second = build_head(spec.second, spec.tower)

    def states(
        self,
        ids_BT: Tensor,
        mask: MaskLike = None,
        *,
        types: Tensor | None = None,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> States:
        states: States = self.tower(ids_BT, mask=mask, types=types, cache=cache, tap=tap.at("tower"))
        return states

    def decode(
        self,
        ids_BT: Tensor,
        encoder_output: States | None = None,
        mask: MaskLike = None,
        *,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> States:
        return self.states(ids_BT, mask, cache=cache, tap=tap)

    def memory(self, length: int) -> Memory:
        """Memory of earlier segments of a text, at most `length` tokens (Transformer-XL)."""
        positions = self.spec.tower.positions
        if not positions.relative:
            raise UnsupportedError(
                f"{type(positions).__name__} positions count from the start of a segment; a memory needs "
                f"relative ones, such as RelativeWaves or Alibi"
            )
        return Memory(self.spec.tower.depth, length)


def check_head(head: Head, tower: Tower) -> None:
    head.fits(tower.embed, tower.embed.inner(tower.width), tower.out_width)


def build_head(head: Head | None, tower: Tower) -> nn.Module | None:
    return None if head is None else head.build(tower.out_width, tower.embed.inner(tower.width))


def _read(head: nn.Module | None, states: States, tower: Stack) -> Tensor:
    if head is None:
        return states.x_BTD
    answer: Tensor = head(states.x_BTD, states.real_BT, tower.embed.shared())
    return answer
