"""The cost of a block and of a tower, put together from what their parts say.

The hidden states between two sub-layers are kept once, by the sub-layer that reads them; a block counts them
where they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...nn import Block, CallShape, HiddenShape, PartCost, PositionCost, Tower, linear_cost
from ...spec import Dims


@dataclass(frozen=True)
class BlockCost:
    """One layer in two halves: norms and dropouts on the hidden states, and the inside of its sub-layers.

    Tensor parallelism divides the inside; the hidden states are whole on each device.
    """

    stream: PartCost
    inside: PartCost
    steps: int  # sub-layers
    last: int  # the operations of the last product, where recomputing stops before it

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
    """Every sub-layer keeps two tensors of hidden states: what its norm is given, and what the norm gives.

    `whole` blocks are recomputed to their end.
    """
    steps = [spec.attention.cost(shape, causal=causal, positions=positions), spec.feedforward.cost(shape)]
    if spec.cross is not None:
        assert encoder is not None
        steps.insert(1, spec.cross.cross_cost(shape, encoder))
    stream, norm = shape.bytes, spec.norm.cost(shape)
    around = norm + PartCost(saved=shape.dropout_bytes(shape.vectors * shape.width, spec.dropout))
    if spec.order == "parallel":  # all sub-layers read the same states
        outside = (around + PartCost(saved=stream)).times(len(steps)) + PartCost(saved=stream)
    elif spec.order == "sandwich":
        outside = (around + norm + PartCost(saved=3 * stream)).times(len(steps))
    else:
        outside = (around + PartCost(saved=2 * stream)).times(len(steps))
    inside = sum(steps[1:], steps[0])
    return BlockCost(outside, inside, len(steps), 0 if whole else _last(spec, shape))


@dataclass(frozen=True)
class TowerCost:
    """The cost of a tower by its parts; `blocks` is in the order of the layers, shared ones repeated."""

    embed: PartCost
    positions: PartCost
    blocks: tuple[BlockCost, ...]
    norm: PartCost
    stream: int  # bytes of the stream between two layers
    bias: int  # bytes of a bias that all layers share
    distinct: int | None
    streams: int | None = None  # kept between layers that are computed again; None: none is

    @property
    def recompute(self) -> bool:
        return self.streams is not None

    @property
    def parameters(self) -> dict[str, int]:
        own = self.distinct or len(self.blocks)
        counted = {
            "embed": self.embed.parameters,
            "positions": self.positions.parameters,
            "blocks": sum(layer.all.parameters for layer in self.blocks[:: len(self.blocks) // own]),
            "norm": self.norm.parameters,
        }
        return {name: count for name, count in counted.items() if count}

    @property
    def flops(self) -> int:
        return sum(cost.flops for cost in self._all)

    @property
    def backward(self) -> int:
        """A tower that recomputes goes through its blocks once more, up to the last tensor it needs."""
        again = sum(layer.all.flops - layer.last for layer in self.blocks) if self.recompute else 0
        return again + sum(cost.backward for cost in self._all)

    @property
    def saved(self) -> int:
        """Bytes kept when the forward pass is over."""
        outside = self.embed.saved + self.positions.saved + self.norm.saved
        if self.streams is not None:
            return outside + self.bias + self.stream * self.streams
        return outside + sum(layer.all.saved for layer in self.blocks)

    @property
    def recomputed(self) -> int:
        """Bytes that come on top while one block is computed again."""
        return max(layer.all.saved for layer in self.blocks) - self.stream if self.recompute else 0

    @property
    def _all(self) -> tuple[PartCost, ...]:
        return (self.embed, self.positions, *(layer.all for layer in self.blocks), self.norm)


def tower(spec: Tower, call: CallShape, encoder: HiddenShape | None = None) -> TowerCost:
    """`call.length` is that of this tower; a decoder reads the encoder output, `encoder`, too."""
    heads, head_dim = spec.pattern[0].attention.sizes(spec.width)
    dims = Dims(width=spec.width, depth=spec.depth, heads=heads, head_dim=head_dim, causal=spec.causal)
    shape, whole = call.hidden(spec.width), spec.residual == "reversible"
    positions = spec.positions.cost(replace(shape, width=spec.embed.table_width(spec.width)), dims)
    costs = [
        block(b, shape, encoder, causal=spec.causal, positions=positions, whole=whole) for b in spec.pattern
    ]
    # Shared layers are made of the first places of the pattern, as the tower builds them.
    own = spec.distinct or spec.depth
    order = [(i * own // spec.depth) % len(costs) for i in range(spec.depth)]
    norm, out = PartCost(), replace(shape, width=spec.out_width)
    if spec.last_norm is not None:
        norm = spec.last_norm.cost(out) + PartCost(saved=out.bytes)
    return TowerCost(
        embed=spec.embed.cost(shape),
        positions=positions.tower,
        blocks=tuple(costs[i] for i in order),
        norm=norm,
        stream=shape.bytes,
        bias=positions.shared_bias,
        distinct=spec.distinct,
        streams=_streams(spec),
    )


def _streams(spec: Tower) -> int | None:
    """A reversible tower recomputes from the last two streams; another keeps the input of each layer."""
    if spec.residual == "reversible":
        return 2
    return spec.depth if spec.recompute else None


def _last(spec: Block, shape: HiddenShape) -> int:
    """Where nothing behind the last product is kept, recomputing a block stops before it."""
    kept_behind = spec.order in ("post", "sandwich") or spec.dropout > 0
    hidden = getattr(spec.feedforward, "hidden", 0)
    return 0 if kept_behind else linear_cost(shape.vectors, hidden, shape.width, bias=False).flops
