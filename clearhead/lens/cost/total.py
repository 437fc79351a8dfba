"""The cost of a whole model: a spec and a call in, one value with every count out. Nothing is built."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ...errors import InputError
from ...nn import Attention, AttentionKernel, CallShape, DeviceType, Head, Model, PartCost, Tokens, Tower
from .layers import TowerCost, tower

MOMENTS = 2  # Adam keeps two numbers for each parameter, in float32


@dataclass(frozen=True)
class Cost:
    """What one call of a model costs. Bytes of what a call does not need are zero."""

    batch: int
    length: int
    training: bool
    parts: dict[str, int]  # parameters by part
    flops: int  # of one forward pass
    training_flops: int  # forwards and backwards
    weights: int  # bytes, as all that follow
    gradients: int
    optimizer: int
    activations: int  # kept for the backward pass, at their largest
    answer: int  # logits: of the last token or, in training, of all, with their logarithms and gradient
    cache: int  # keys and values of a decoding run that has reached this length

    @property
    def parameters(self) -> int:
        return sum(self.parts.values())

    @property
    def memory(self) -> int:
        """Bytes all together: of a training step, or of decoding up to this length."""
        if not self.training:
            return self.weights + self.cache + self.answer
        return self.weights + self.gradients + self.optimizer + self.activations + self.answer

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"parameters": self.parameters, "memory": self.memory}


@dataclass(frozen=True)
class Whole:
    """The cost of a model by its towers, and of its head."""

    towers: dict[str, TowerCost]
    head: PartCost
    shared: int = 0  # parameters that stand in two towers and exist once
    second: int = 0  # parameters of a second head, which a call does not use

    @property
    def flops(self) -> int:
        return self.head.flops + sum(side.flops for side in self.towers.values())

    @property
    def backward(self) -> int:
        return self.head.backward + sum(side.backward for side in self.towers.values())


def whole(spec: Model, call: CallShape) -> Whole:
    """The cost of every part of a model in one call."""
    source, last = spec.source_tower, _last_call(spec, call)
    output = None if source is None else call.hidden(source.width)
    sides = {
        name: tower(side, call) if output is None or side is source else tower(side, last, output)
        for name, side in spec.tower_fields.items()
    }
    head = _head(spec.head, spec.head_tower, last)
    if output is not None:  # the encoder output is kept once, for the keys and values of all layers
        head += PartCost(saved=output.bytes)
    shared = _table(spec.head_tower) if spec.shared else 0
    return Whole(sides, head, shared, second=_head(spec.second, spec.head_tower, call).parameters)


def _last_call(spec: Model, call: CallShape) -> CallShape:
    """As the tower that the head reads is called: with the target, if the source has its own tower."""
    return replace(call, length=call.target or call.length) if spec.is_encoder_decoder else call


def cost(
    spec: Model,
    *,
    batch: int = 1,
    length: int = 128,
    target: int | None = None,
    training: bool = False,
    number: int = 4,
    device: DeviceType = "cpu",
) -> Cost:
    """`target` is the length of the second text of a pair; `number` the bytes of one number."""
    for name, given in (("batch", batch), ("length", length), ("target", target)):
        if given is not None and given < 1:
            raise InputError(f"{name} is {given}; expected 1 or more")
    call = CallShape(
        batch=batch, length=length, target=target, training=training, number=number, device=device
    )
    parts = whole(spec, replace(call, training=True))
    counted = _parts(parts)
    total = sum(counted.values())
    learning = parts.flops + parts.backward
    kept = parts.head.saved + sum(side.saved for side in parts.towers.values())
    peak = kept + max(side.recomputed for side in parts.towers.values())
    return Cost(
        batch=batch,
        length=length,
        training=training,
        parts=counted,
        flops=parts.flops if training else whole(spec, call).flops,
        training_flops=learning,
        weights=number * total,
        gradients=number * total if training else 0,
        # In half precision the optimiser has the weights in float32, too.
        optimizer=4 * (MOMENTS + (number < 4)) * total if training else 0,
        activations=peak if training else 0,
        answer=answered(spec, call),
        cache=number * cached_numbers(spec, batch=batch, length=length, target=target),
    )


def answered(spec: Model, call: CallShape) -> int:
    """Bytes of logits: of the last token while decoding, of all for a loss, with logarithms and gradient."""
    last = _last_call(spec, call)
    shape = replace(last, length=last.length if call.training else 1).hidden(spec.head_tower.out_width)
    numbers = shape.vectors * shape.width if spec.head is None else spec.head.outputs(shape)
    return numbers * (call.number + (8 if call.training else 0))


def cached_numbers(spec: Model, *, batch: int, length: int, target: int | None = None) -> int:
    """How many numbers a decoding run of this length has cached: keys and values of both sides."""
    if not spec.decodes:
        return 0
    side, own = spec.head_tower, (target or length) if spec.is_encoder_decoder else length
    kept = 0
    for i in range(side.depth):
        here = side.pattern[i % len(side.pattern)]
        if isinstance(here.attention, Attention):
            kept += here.attention.kernel.cached(here.attention.call_shape(side.width, batch, 1, own))
        else:
            kept += batch * here.attention.state(side.width)
        if here.cross is not None:  # of the encoder output, keys and values are cached whatever the kernel
            at = here.cross.call_shape(side.width, batch, 1, length)
            kept += AttentionKernel.cached(here.cross.kernel, at)
    return kept


def _head(head: Head | None, side: Tower, call: CallShape) -> PartCost:
    return PartCost() if head is None else head.cost(call.hidden(side.out_width), side.embed, side.width)


def _table(side: Tower) -> int:
    assert isinstance(side.embed, Tokens)
    return side.embed.vocab * side.embed.table_width(side.width)


def _parts(whole: Whole) -> dict[str, int]:
    """By part of the model, a shared table where it stands first: in the encoder."""
    counted = {
        f"{side}.{part}": count
        for side, tower_cost in whole.towers.items()
        for part, count in tower_cost.parameters.items()
    }
    if whole.shared:
        counted["decoder.embed"] -= whole.shared
    counted |= {"head": whole.head.parameters, "second": whole.second}
    return {part: count for part, count in counted.items() if count}
