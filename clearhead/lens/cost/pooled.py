"""The cost of the layers of a tower that pools: each has a length of its own, so they are counted.

The layers run once on torch's meta device (`nn/counting.py`), with the positions that several of them share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from ...errors import UnsupportedError
from ...nn import (
    Attention,
    BoundPositions,
    Context,
    Everyone,
    HiddenShape,
    PartCost,
    Pooling,
    PositionCost,
    Stack,
    TokenMixer,
    Tower,
    View,
    count_steps,
)
from .blocks import BlockCost, block


def pooled_blocks(
    spec: Tower, pooling: Pooling, blocks: tuple[BlockCost, ...], shape: HiddenShape
) -> tuple[BlockCost, ...]:
    """The cost of every layer, at its own length. `blocks` have their parameters."""
    lengths = pooling.lengths(shape.length, spec.depth)
    found = []
    for i, (layer, cost) in enumerate(zip(blocks, _counted(spec, shape), strict=True)):
        own = spec.pattern[spec.weights_of_layers[i] % len(spec.pattern)]
        here = block(own, replace(shape, length=lengths[i]), None, causal=False, positions=PositionCost())
        inside = PartCost(
            parameters=layer.inside.parameters,
            flops=cost.flops - here.stream.flops,
            backward=cost.backward - here.stream.backward,
            saved=cost.saved - here.stream.saved,
        )
        found.append(replace(here, inside=inside))
    return tuple(found)


def pooled_inputs(spec: Tower, pooling: Pooling, shape: HiddenShape) -> tuple[int, int]:
    """What recomputation keeps, in bytes: the inputs of all layers, and the positions that they share."""
    views = pooling.views_of_text(shape.length, spec.depth, torch.device("meta"))
    # A layer with pooled queries also reads its keys from the stream before pooling.
    lengths = [view.queries + (view.keys if view.is_cross else 0) for view in views]
    if pooling.reduce == "max":  # both tokens of a pair, to know which of them was taken
        lengths += [2 * views[layer].queries for layer in pooling.before]
    streams = sum(replace(shape, length=length).bytes for length in lengths)
    with torch.device("meta"):
        stack = spec.build()
    saved: list[Tensor] = []  # for the backward pass of binding: a learned scheme looks up its table there

    def keep(x: Tensor) -> Tensor:
        saved.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        bound = stack.bound_positions(views)
    learned = {x.untyped_storage()._cdata for x in stack.parameters()}
    kept = {
        x.untyped_storage()._cdata: x.untyped_storage().nbytes()
        for x in (*saved, *(x for each in bound for x in _tensors(each)))
    }
    return streams, sum(size for storage, size in kept.items() if storage not in learned)


def check_is_counted(attention: TokenMixer, positions: PositionCost) -> None:
    """On the meta device, attention without a learned bias saves other tensors than on a CPU or a GPU."""
    if isinstance(attention, Attention) and positions.bias in ("none", "fixed"):
        raise UnsupportedError(
            "the cost of a tower that pools is known only for positions with learned scores, as RelativeWaves"
        )


@lru_cache(maxsize=64)  # the shapes of one model recur, and counting runs all its layers
def _counted(spec: Tower, shape: HiddenShape) -> list[PartCost]:
    size = (shape.batch, shape.length, shape.width)
    return count_steps(spec, spec.build, _run_layers, size, shape)


def _run_layers(stack: Stack, x_BTD: Tensor) -> Iterator[Tensor]:
    """What every layer returns, one after another."""
    assert stack.spec.pooling is not None
    slots = torch.arange(x_BTD.shape[1], device=x_BTD.device)[None]
    view = View(Everyone(), len(x_BTD), slots, slots)
    pooled = stack.spec.pooling.bind(view, None, stack.spec.depth)
    positions = stack.bound_positions(pooled.views)
    for i, layer in enumerate(stack.blocks):
        here = Context(pooled.views[i], positions[i], layer=stack.weights_of_layers[i])
        x_BTD = layer(*pooled.enter(i, x_BTD, here))
        yield x_BTD


def _tensors(bound: BoundPositions) -> Iterator[Tensor]:
    """The tensors that bound positions hold."""
    for value in vars(bound).values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Tensor):
                yield each
            elif isinstance(each, BoundPositions):
                yield from _tensors(each)
