"""Models: ids in, logits out. The base classes, and models with one tower; see also `encoder_decoder`.

A model never sees text, computes no loss and does not sample.
Shape suffixes: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import InputError, SpecError, UnsupportedError
from ..spec import Spec
from .argument_names import own_names
from .cache import Cache, RowOrder
from .cache_precision import CachePrecision
from .context import States
from .experts import Experts
from .heads import Head, WordHead
from .init import Init, Normal, check_weights_fit, initialise
from .long.segment_memory import SegmentMemory
from .masks import Mask
from .stack import Stack
from .tap import OFF, Tap
from .tower import Tower

MaskLike = Mask | Tensor | None


class Model(Spec):
    """A whole model. `build` creates it with initial weights, `count` only counts its parameters."""

    head: Head | None = None  # without a head the output is the hidden states
    second: Head | None = None
    shared: bool = False  # all towers use one embedding table
    init: Init

    def assemble(self) -> TransformerModel:
        """The module of this spec, with parameters that are not initialised."""
        raise NotImplementedError

    @property
    def towers(self) -> dict[str, Tower]:
        """The towers by their role: encoder, decoder or both."""
        raise NotImplementedError

    @property
    def inputs(self) -> int:
        """How many inputs a call takes: one for each tower, unless they read the same one."""
        return len(self.towers)

    @property
    def tower_fields(self) -> dict[str, Tower]:
        """The towers by the names of their fields, which are also their module names in the built model."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tower)}

    @property
    def head_tower(self) -> Tower:
        """The tower whose hidden states the head reads."""
        return list(self.towers.values())[-1]

    @property
    def source_tower(self) -> Tower | None:
        """The encoder whose output the decoder attends to; None for a model without cross-attention."""
        return None

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether a call takes a source and a target, as for translation."""
        return self.source_tower is not None and self.inputs > 1

    @property
    def decodes(self) -> bool:
        """Whether every token depends on earlier ones only, so that decode steps can be cached."""
        return self.head_tower.causal

    @property
    def generates(self) -> bool:
        """Whether it generates text token by token."""
        return self.decodes and self.head_tower.embed.reads_ids and isinstance(self.head, WordHead)

    @property
    def has_experts(self) -> bool:
        """Whether some layer is a mixture of experts."""
        return any(isinstance(node, Experts) for node in self.nodes())

    @property
    def max_length(self) -> int | None:
        """The longest text that every tower has positions for; None: no limit."""
        return min((t.max_length for t in self.towers.values() if t.max_length is not None), default=None)

    def empty(self) -> TransformerModel:
        """The model on torch's meta device: shapes only, nothing is allocated or initialised."""
        with torch.device("meta"):
            return self.assemble().eval()

    def build(
        self, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> TransformerModel:
        model = self.empty().to(dtype)
        check_weights_fit(model, device)
        model.to_empty(device=device)
        initialise(model, self.init, seed)
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
    """A built model. A call takes its inputs, one for each tower, and the options of `states`, such as masks.

    It returns the output of the head, or the last hidden states if there is no head. Inputs and masks may
    also be given under the names of transformers: `model(input_ids=ids, attention_mask=mask)`.
    """

    spec: Model
    their_names: ClassVar[Mapping[str, str]] = {}  # names of transformers -> arguments of `states`
    head: nn.Module | None
    second: nn.Module | None
    cache_precision: CachePrecision = "float32"  # of the keys and values in a new cache
    row_order: RowOrder | None = None  # of one run: what belongs to its rows, and moves with them

    @property
    def stacks(self) -> dict[str, Stack]:
        """The built towers by their module names, with which the addresses of taps begin."""
        return {name: getattr(self, name) for name in self.spec.tower_fields}

    @property
    def head_stack(self) -> Stack:
        """The tower whose states the head reads."""
        return list(self.stacks.values())[-1]

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        if options:
            options = own_names(options, self.their_names)
        return self.read(self.states(*inputs, **options))

    def states(self, *inputs: Any, **options: Any) -> States:
        """The last hidden states, and the text of each token; `read` applies the head to them."""
        raise NotImplementedError

    def hidden(self, *inputs: Any, **options: Any) -> Tensor:
        """The last hidden states, (B, T, width)."""
        if options:
            options = own_names(options, self.their_names)
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
        """The output of the head for these states."""
        return _read(self.head, self.spec.head, states, self.head_stack)

    def read_second(self, states: States) -> Tensor:
        """The output of the second head for these states."""
        if self.spec.second is None:
            raise InputError(
                "this model has one head; a second one is a field of its spec: SingleStack(second=...)"
            )
        return _read(self.second, self.spec.second, states, self.head_stack)

    def cache(self, capacity: int | None = None) -> Cache:
        """A cache for `capacity` tokens, and for the virtual ones that the model puts before a text."""
        virtual = self.spec.head_tower.virtual
        if capacity is not None and virtual is not None:
            capacity += virtual.length
        return Cache(self.spec.head_tower.depth, capacity, self.cache_precision)


@dataclass(frozen=True, kw_only=True)
class SingleStack(Model):
    """One tower and a head: GPT and LLaMA when it is causal, BERT when it is not."""

    tower: Tower
    head: Head | None = None  # None: the output is the hidden states
    second: Head | None = None  # see `read_second` (BERT's next-sentence prediction)
    init: Init = field(default_factory=Normal)

    def check(self) -> None:
        if self.head is not None:
            check_head(self.head, self.tower)

    @property
    def towers(self) -> dict[str, Tower]:
        return {"decoder" if self.tower.causal else "encoder": self.tower}

    def assemble(self) -> SingleStackModel:
        return SingleStackModel(self)


class SingleStackModel(TransformerModel):
    spec: SingleStack
    their_names: ClassVar = {"input_ids": "ids_BT", "attention_mask": "mask", "token_type_ids": "types"}

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
        states: States = self.tower(ids_BT, mask=mask, cache=cache, tap=tap.at("tower"))
        return states

    def segment_memory(self, length: int) -> SegmentMemory:
        """Memory of earlier segments of a text, at most `length` tokens (Transformer-XL)."""
        positions = self.spec.tower.positions
        if not positions.relative or positions.max_length is not None:
            raise UnsupportedError(
                f"{type(positions).__name__} positions count from the start of a segment; a segment memory "
                f"needs relative ones, such as RelativeWaves or Alibi"
            )
        return SegmentMemory(self.spec.tower.depth, length)


def check_head(head: Head, tower: Tower) -> None:
    if tower.shortens and head.per_token:
        raise SpecError(
            f"{type(head).__name__} reads every token, and the tower pools them: set Pooling(restore=...)"
        )
    head.check_embedding(tower.embed, tower.embed.table_widths(tower.width)[0], tower.out_width)


def build_head(head: Head | None, tower: Tower) -> nn.Module | None:
    return None if head is None else head.build(tower.out_width, tower.embed.table_widths(tower.width)[0])


def _read(head: nn.Module | None, spec: Head | None, states: States, tower: Stack) -> Tensor:
    if head is None or spec is None:
        return states.x_BTD
    # A head that pools reads the states of virtual tokens as well.
    read = states if states.whole is None or spec.per_token else states.whole
    answer: Tensor = head(read.x_BTD, read.real_BT, tower.embed.tied_weights())
    return answer
