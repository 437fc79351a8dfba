"""The cost of a tower, summed over its parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ...nn import (
    CallShape,
    HiddenShape,
    PartCost,
    PrefixTokens,
    PromptTokens,
    Tokens,
    Tower,
    linear_cost,
    matmul_cost,
)
from .blocks import BlockCost, block
from .pooled import check_is_counted, pooled_blocks, pooled_inputs

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
    weights: tuple[int, ...]  # which set of weights each layer has; layers that share have the same
    held: int | None = None  # bytes of the streams saved with recomputation; None: nothing is recomputed
    project: PartCost = NOTHING  # after the last norm, where the output is narrower
    virtual: PartCost = NOTHING  # the parameters of virtual tokens

    @property
    def end(self) -> PartCost:
        """What comes after the last layer."""
        return self.norm + self.project

    @property
    def recompute(self) -> bool:
        return self.held is not None

    @property
    def parameters(self) -> dict[str, int]:
        own = dict(zip(self.weights, self.blocks, strict=True))
        counts = {
            "embed": self.embed.parameters,
            "positions": self.positions.parameters,
            "blocks": sum(layer.all.parameters for layer in own.values()),
            "norm": self.norm.parameters,
            "project": self.project.parameters,
            "virtual": self.virtual.parameters,
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
        if self.held is not None:
            return outside + self.bias + self.held
        return outside + sum(layer.all.saved for layer in self.blocks)

    @property
    def recomputed(self) -> int:
        """Additional bytes while one block is recomputed."""
        return max(layer.all.saved for layer in self.blocks) - self.stream if self.recompute else 0

    @property
    def _all(self) -> tuple[PartCost, ...]:
        return (self.embed, self.positions, *(layer.all for layer in self.blocks), self.end)


def _embedding(spec: Tower, shape: HiddenShape) -> PartCost:
    """Where vectors are projected before positions are added, those of a prompt are, once for all texts."""
    embed, found = spec.embed, spec.embed.cost(shape)
    projects_first = isinstance(embed, Tokens) and embed.factor and "project-positions" in embed.order
    if isinstance(spec.virtual, PromptTokens) and projects_first:
        again = (shape.batch - 1) * spec.virtual.length
        found += matmul_cost(1, -again, embed.vector_width(spec.width), spec.width)
    return found


def tower(spec: Tower, call: CallShape, encoder: HiddenShape | None = None) -> TowerCost:
    """The cost of a tower. `call.length` is its own length; `encoder` is the encoder output of a decoder."""
    dims, own = spec.dims(), spec.own_layers
    whole, virtual = spec.residual == "reversible", spec.virtual
    shape = call.hidden(spec.width)
    if isinstance(virtual, PromptTokens):  # these are tokens like others
        shape = replace(shape, length=shape.length + virtual.length)
    elif isinstance(virtual, PrefixTokens):
        shape = replace(shape, lead=virtual.length)
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
    blocks = tuple(costs[i % len(costs)] for i in spec.weights_of_layers)
    # What a scheme computes for a call is shared by the layers that have it, unless each learns its own.
    bound = Counter([spec.positions])
    for i in range(own):
        scheme = schemes[i % len(schemes)]
        learns = spec.pattern[i % len(schemes)].positions is not None and positions[scheme].tower.parameters
        bound[scheme] = bound[scheme] + 1 if learns else 1
    computed = [replace(positions[scheme].tower, parameters=0).times(n) for scheme, n in bound.items()]
    learned = PartCost(parameters=positions[spec.positions].tower.parameters)
    bias = sum(n * positions[scheme].shared_bias for scheme, n in bound.items())
    # A reversible tower recomputes from its last two streams, others from the input of each layer.
    streams = 2 if spec.residual == "reversible" else spec.depth if spec.recompute else None
    held = None if streams is None else streams * shape.bytes
    if spec.pooling is not None:
        for b, scheme in zip(spec.pattern, schemes, strict=True):
            check_is_counted(b.attention, positions[scheme])
        blocks, computed = pooled_blocks(spec, spec.pooling, blocks, shape), []
        held, bias = pooled_inputs(spec, spec.pooling, shape) if spec.recompute else (None, 0)
    norm = PartCost()
    out = replace(shape, width=spec.stream_width, length=spec.out_length(shape.length))
    if spec.last_norm is not None:
        norm = spec.last_norm.cost(out) + PartCost(saved=out.bytes)
    project = PartCost()
    if spec.last_width is not None:
        project = linear_cost(out.vectors, out.width, spec.last_width, bias=False) + PartCost(saved=out.bytes)
    return TowerCost(
        embed=_embedding(spec, shape),
        virtual=virtual.cost(spec) if virtual else NOTHING,
        positions=sum(computed, learned),
        blocks=blocks,
        norm=norm,
        project=project,
        stream=shape.bytes,
        bias=bias,
        weights=spec.weights_of_layers,
        held=held,
    )
