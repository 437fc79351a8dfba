"""The cost of a whole model: a spec and the shape of a call in; one value with all counts out. No weights
are allocated."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ...errors import InputError
from ...nn import (
    Attention,
    AttentionKernel,
    CallShape,
    DeviceType,
    Head,
    HiddenShape,
    Model,
    PartCost,
    PrefixTokens,
    PromptTokens,
    Tokens,
    Tower,
)
from .layers import TowerCost, tower

MOMENTS = 2  # Adam keeps two numbers for each parameter, in float32


@dataclass(frozen=True)
class Cost:
    """The cost of one call of a model. Memory that the call does not need is zero."""

    batch: int
    length: int
    training: bool
    parts: dict[str, int]  # parameters by part
    flops: int  # of one forward pass
    training_flops: int  # forward and backward pass
    weights: int  # in bytes, like all below
    gradients: int
    optimizer: int
    activations: int  # saved for the backward pass, at the peak
    answer: int  # logits of the last token; in training of all tokens, with log-probabilities and gradient
    cache: int  # KV cache of decoding at this length

    @property
    def parameters(self) -> int:
        return sum(self.parts.values())

    @property
    def memory(self) -> int:
        """Total bytes of a training step, or of decoding up to this length."""
        if not self.training:
            return self.weights + self.cache + self.answer
        return self.weights + self.gradients + self.optimizer + self.activations + self.answer

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"parameters": self.parameters, "memory": self.memory}


@dataclass(frozen=True)
class ModelCost:
    """The cost of each tower and of the head."""

    towers: dict[str, TowerCost]
    head: PartCost
    shared: int = 0  # parameters of an embedding that two towers share
    second: int = 0  # parameters of a second head, which the call does not use

    @property
    def flops(self) -> int:
        return self.head.flops + sum(side.flops for side in self.towers.values())

    @property
    def backward(self) -> int:
        return self.head.backward + sum(side.backward for side in self.towers.values())


def model_cost(spec: Model, call: CallShape) -> ModelCost:
    """The cost of every part of a model in one call."""
    source, last = spec.source_tower, _last_call(spec, call)
    output = None if source is None else _encoder_output(source, spec.head_tower, call)
    sides = {
        name: tower(side, call) if output is None or side is source else tower(side, last, output)
        for name, side in spec.tower_fields.items()
    }
    head = _head(spec.head, spec.head_tower, last)
    if output is not None:  # the encoder output is saved once, for the keys and values of all layers
        head += PartCost(saved=output.bytes)
    shared = 0
    if spec.shared:
        embed = spec.head_tower.embed
        assert isinstance(embed, Tokens)
        shared = embed.vocab * embed.table_widths(spec.head_tower.width)[0]
    return ModelCost(sides, head, shared, second=_head(spec.second, spec.head_tower, call).parameters)


def _encoder_output(source: Tower, decoder: Tower, call: CallShape) -> HiddenShape:
    """With the states of virtual tokens, and the keys that the decoder puts before them."""
    prompt = source.virtual.length if isinstance(source.virtual, PromptTokens) else 0
    lead = decoder.virtual.cross if isinstance(decoder.virtual, PrefixTokens) else 0
    return replace(call.hidden(source.out_width), length=call.length + prompt, lead=lead)


def _last_call(spec: Model, call: CallShape) -> CallShape:
    """The shape of the call of the last tower: with the target length in an encoder-decoder."""
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
    """Estimate the cost of one call. `target` is the decoder length of an encoder-decoder, `number` the bytes
    per number."""
    for name, given in (("batch", batch), ("length", length), ("target", target)):
        if given is not None and given < 1:
            raise InputError(f"{name} is {given}; expected 1 or more")
    call = CallShape(
        batch=batch, length=length, target=target, training=training, number=number, device=device
    )
    training_cost = model_cost(spec, replace(call, training=True))
    parts = _parameters_by_part(training_cost)
    total = sum(parts.values())
    saved = training_cost.head.saved + sum(side.saved for side in training_cost.towers.values())
    # At the peak one block is being recomputed.
    peak = saved + max(side.recomputed for side in training_cost.towers.values())
    return Cost(
        batch=batch,
        length=length,
        training=training,
        parts=parts,
        flops=training_cost.flops if training else model_cost(spec, call).flops,
        training_flops=training_cost.flops + training_cost.backward,
        weights=number * total,
        gradients=number * total if training else 0,
        # In half precision the optimiser keeps another copy of the weights in float32.
        optimizer=4 * (MOMENTS + (number < 4)) * total if training else 0,
        activations=peak if training else 0,
        answer=logits_bytes(spec, call),
        cache=number * cached_numbers(spec, batch=batch, length=length, target=target),
    )


def logits_bytes(spec: Model, call: CallShape) -> int:
    """Bytes of the logits; in training also of their log-probabilities and gradients in float32.

    Decoding needs those of the last position alone.
    """
    last = _last_call(spec, call)
    only_last = spec.decodes and not call.training
    length = 1 if only_last else spec.head_tower.out_length(last.length)
    shape = replace(last, length=length).hidden(spec.head_tower.out_width)
    numbers = shape.vectors * shape.width if spec.head is None else spec.head.outputs(shape)
    return numbers * (call.number + (8 if call.training else 0))


def cached_numbers(spec: Model, *, batch: int, length: int, target: int | None = None) -> int:
    """Size of the KV cache at this length, in numbers; includes the keys and values of cross-attention."""
    if not spec.decodes:
        return 0
    side, own = spec.head_tower, (target or length) if spec.is_encoder_decoder else length
    own += side.virtual.length if side.virtual else 0
    if spec.source_tower is not None:
        length = _encoder_output(spec.source_tower, side, CallShape(batch=batch, length=length)).keys
    cached = 0
    for i in range(side.depth):
        block = side.pattern[i % len(side.pattern)]
        if isinstance(block.attention, Attention):
            cached += block.attention.cached(side.width, batch, own)
        else:
            cached += batch * block.attention.state(side.width)
        if block.cross is not None:  # keys and values of the encoder output are cached with any kernel
            call = block.cross.call_shape(side.width, batch, 1, length)
            cached += AttentionKernel.cached(block.cross.kernel, call)
    return cached


def _head(head: Head | None, side: Tower, call: CallShape) -> PartCost:
    if head is None:
        return PartCost()
    # A head that pools reads the states of a prompt as well.
    prompt = side.virtual.length if isinstance(side.virtual, PromptTokens) and not head.per_token else 0
    shape = replace(call, length=side.out_length(call.length) + prompt).hidden(side.out_width)
    return head.cost(shape, side.embed, side.width)


def _parameters_by_part(total: ModelCost) -> dict[str, int]:
    """Parameters by part of the model. A shared embedding counts in the encoder."""
    counts = {
        f"{side}.{part}": count
        for side, tower_cost in total.towers.items()
        for part, count in tower_cost.parameters.items()
    }
    if total.shared:
        counts["decoder.embed"] -= total.shared
    counts |= {"head": total.head.parameters, "second": total.second}
    return {part: count for part, count in counts.items() if count}
