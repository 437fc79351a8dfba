"""The cost of a block and of a tower, summed over their parts.

The hidden states between two sub-layers are saved once for the backward pass; they are counted in the
sub-layer that reads them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ...nn import Block, CallShape, HiddenShape, PartCost, PositionCost, Tower, linear_cost


@dataclass(frozen=True)
class BlockCost:
    """One layer in two parts: norms and dropout on the hidden states, and the inside of its sub-layers.

    Tensor parallelism splits the inside; each device has the complete hidden states.
    """

    stream: PartCost
    inside: PartCost
    steps: int  # sub-layers
    last: int  # FLOPs of the last matrix product, if recomputation stops before it

    @property
    def all(self) -> PartCost:
        return self.stream + self.inside


def block(
    spec: Block,
    shape: HiddenShape,
    encoder: HiddenShape | None,
    *,
    causal: bool,
    positions: PositionCost,
    whole: bool = False,
) -> BlockCost:
    """The cost of one block. Every sub-layer saves the input and the output of its norm.

    `whole`: the block is recomputed to its end.
    """
    steps = [spec.attention.cost(shape, causal=causal, positions=positions), spec.feedforward.cost(shape)]
    if spec.cross is not None:
        assert encoder is not None
        steps.insert(1, spec.cross.cross_cost(shape, encoder))
    if spec.aside is not None:
        steps.append(spec.aside.cost(shape, causal=causal, positions=PositionCost()))
    stream, norm = shape.bytes, spec.norm.cost(shape)
    norm_and_dropout = norm + PartCost(saved=shape.dropout_bytes(shape.vectors * shape.width, spec.dropout))
    if spec.order == "parallel":  # all sub-layers read the same states
        outside = (norm_and_dropout + PartCost(saved=stream)).times(len(steps)) + PartCost(saved=stream)
    elif spec.order == "parallel-shared":  # and the same norm of them
        dropout = replace(norm_and_dropout, parameters=0, saved=norm_and_dropout.saved - norm.saved)
        outside = dropout.times(len(steps)) + norm + PartCost(saved=2 * stream)
    elif spec.order == "sandwich":
        outside = (norm_and_dropout + norm + PartCost(saved=3 * stream)).times(len(steps))
    else:
        outside = (norm_and_dropout + PartCost(saved=2 * stream)).times(len(steps))
    if spec.attention_norm is not None:
        own = spec.attention_norm.cost(shape)
        outside += replace(own, parameters=own.parameters - norm.parameters, saved=own.saved - norm.saved)
    inside = sum(steps[1:], steps[0])
    return BlockCost(outside, inside, len(steps), 0 if whole else _skipped_flops(spec, shape))


NOTHING = PartCost()


@dataclass(frozen=True)
class TowerCost:
    """The cost of a tower by its parts; `blocks` is in the order of the layers, shared ones repeated."""

    embed: PartCost
    positions: PartCost
    blocks: tuple[BlockCost, ...]
    norm: PartCost
    stream: int  # bytes of the residual stream between two layers
    bias: int  # bytes of a position bias that all layers share
    distinct: int | None  # layers with weights of their own; None: all
    streams: int | None = None  # streams saved with recomputation; None: nothing is recomputed
    project: PartCost = NOTHING  # after the last norm, where the output is narrower

    @property
    def end(self) -> PartCost:
        """What comes after the last layer."""
        return self.norm + self.project

    @property
    def recompute(self) -> bool:
        return self.streams is not None

    @property
    def parameters(self) -> dict[str, int]:
        own = self.distinct or len(self.blocks)
        counts = {
            "embed": self.embed.parameters,
            "positions": self.positions.parameters,
            "blocks": sum(layer.all.parameters for layer in self.blocks[:: len(self.blocks) // own]),
            "norm": self.norm.parameters,
            "project": self.project.parameters,
        }
        return {name: count for name, count in counts.items() if count}

    @property
    def flops(self) -> int:
        return sum(cost.flops for cost in self._all)

    @property
    def backward(self) -> int:
        """FLOPs of the backward pass, including those of recomputation."""
        again = sum(layer.all.flops - layer.last for layer in self.blocks) if self.recompute else 0
        return again + sum(cost.backward for cost in self._all)

    @property
    def saved(self) -> int:
        """Bytes saved for the backward pass."""
        outside = self.embed.saved + self.positions.saved + self.end.saved
        if self.streams is not None:
            return outside + self.bias + self.stream * self.streams
        return outside + sum(layer.all.saved for layer in self.blocks)

    @property
    def recomputed(self) -> int:
        """Additional bytes while one block is recomputed."""
        return max(layer.all.saved for layer in self.blocks) - self.stream if self.recompute else 0

    @property
    def _all(self) -> tuple[PartCost, ...]:
        return (self.embed, self.positions, *(layer.all for layer in self.blocks), self.end)


def tower(spec: Tower, call: CallShape, encoder: HiddenShape | None = None) -> TowerCost:
    """The cost of a tower. `call.length` is its own length; `encoder` is the encoder output of a decoder."""
    dims, shape, whole = spec.dims(), call.hidden(spec.width), spec.residual == "reversible"
    embedded = replace(shape, width=spec.embed.table_width(spec.width))
    schemes = [b.positions or spec.positions for b in spec.pattern]
    positions = {scheme: scheme.cost(embedded, dims) for scheme in {*schemes, spec.positions}}
    costs = []
    for b, scheme in zip(spec.pattern, schemes, strict=True):
        cost = block(b, shape, encoder, causal=spec.causal, positions=positions[scheme], whole=whole)
        if b.positions is not None:
            learned = PartCost(parameters=positions[scheme].tower.parameters)
            cost = replace(cost, inside=cost.inside + learned)
        costs.append(cost)
    # Layers that share weights take the first blocks of the pattern, as when the tower is built.
    own = spec.distinct or spec.depth
    order = [(i * own // spec.depth) % len(costs) for i in range(spec.depth)]
    # What a scheme computes for a call is shared by the layers that have it, unless each learns its own.
    bound = Counter([spec.positions])
    for i in range(own):
        scheme = schemes[i % len(schemes)]
        learns = spec.pattern[i % len(schemes)].positions is not None and positions[scheme].tower.parameters
        bound[scheme] = bound[scheme] + 1 if learns else 1
    computed = [replace(positions[scheme].tower, parameters=0).times(n) for scheme, n in bound.items()]
    learned = PartCost(parameters=positions[spec.positions].tower.parameters)
    # A reversible tower recomputes from its last two streams, others from the input of each layer.
    streams = 2 if spec.residual == "reversible" else spec.depth if spec.recompute else None
    norm, out = PartCost(), replace(shape, width=spec.stream_width)
    if spec.last_norm is not None:
        norm = spec.last_norm.cost(out) + PartCost(saved=out.bytes)
    project = PartCost()
    if spec.last_width is not None:
        project = linear_cost(out.vectors, out.width, spec.last_width, bias=False) + PartCost(saved=out.bytes)
    return TowerCost(
        embed=spec.embed.cost(shape),
        positions=sum(computed, learned),
        blocks=tuple(costs[i] for i in order),
        norm=norm,
        project=project,
        stream=shape.bytes,
        bias=sum(n * positions[scheme].shared_bias for scheme, n in bound.items()),
        distinct=spec.distinct,
        streams=streams,
    )


def _skipped_flops(spec: Block, shape: HiddenShape) -> int:
    """Recomputation stops before the last product, unless something after it is saved."""
    saved_after = spec.order in ("post", "output", "sandwich") or spec.dropout > 0
    saved_after = saved_after or spec.aside is not None
    inputs = spec.feedforward.last_product_inputs
    return 0 if saved_after else linear_cost(shape.vectors, inputs, shape.width, bias=False).flops
