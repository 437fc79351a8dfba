"""The work of attention, of a block and of a tower, put together from their parts.

The stream between two sub-layers is kept once, by whoever reads it; a block counts it where it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch

from ...errors import UnsupportedError
from ...nn.attention import Attention, TokenMixer
from ...nn.block import Block
from ...nn.mixers import Convolution, Recurrent
from ...nn.positions import NoPositions, Positions
from ...nn.rope import Rope
from ...nn.tower import Tower
from ...nn.work import Bias, Meeting, Rule, Usage, Work, product
from ...spec import Dims
from . import parts
from .parts import linear
from .recurrent import recurrent


@dataclass(frozen=True)
class Sides:
    """The sizes of one tower in one call; without cross-attention the memory is nothing."""

    batch: int
    length: int
    memory: int = 0  # tokens that a decoder looks back at
    memory_width: int = 0

    @property
    def vectors(self) -> int:
        return self.batch * self.length


@dataclass(frozen=True)
class Scheme:
    """What a tower's position scheme does to queries and scores."""

    part: Positions

    @property
    def bias(self) -> Bias:
        return parts.bias_of(self.part)

    @property
    def joined(self) -> bool:
        return isinstance(self.part, Rope) and self.part.fraction < 1


SILENT = Scheme(NoPositions())


@singledispatch
def mixer(spec: TokenMixer, width: int, sides: Sides, call: Usage, *, causal: bool, scheme: Scheme) -> Work:
    """What lets tokens know of each other; its input is counted by the block."""
    raise parts.no_formula(spec)


@mixer.register
def _(spec: Convolution, width: int, sides: Sides, call: Usage, *, causal: bool, scheme: Scheme) -> Work:
    """What the convolution is given is a copy with margins, kept instead of the input; then the gate."""
    margin = sides.batch * (spec.size - 1)
    work = product(1, sides.vectors, spec.size * width, 2 * width) + linear(
        sides.vectors, width, width, bias=True
    )
    work += Work(parameters=2 * width * (spec.size * width + 1))
    return work + Work(saved=call.number * width * (3 * sides.vectors + margin))


@mixer.register
def _(spec: Recurrent, width: int, sides: Sides, call: Usage, *, causal: bool, scheme: Scheme) -> Work:
    return recurrent(spec, width, sides.batch, sides.length, call)


@mixer.register
def attention(
    spec: Attention, width: int, sides: Sides, call: Usage, *, causal: bool, scheme: Scheme
) -> Work:
    """Self-attention: four projections and the kernel between them."""
    rule: Rule = "mask" if spec.window else "causal" if causal else "open"
    return _attention(spec, width, (width, sides.length), sides, call, rule, scheme, causal=causal)


def cross(spec: Attention, width: int, sides: Sides, call: Usage) -> Work:
    """Cross-attention: keys and values are made of the memory."""
    return _attention(spec, width, (sides.memory_width, sides.memory), sides, call, "open", SILENT)


def _attention(
    spec: Attention,
    width: int,
    source: tuple[int, int],
    sides: Sides,
    call: Usage,
    rule: Rule,
    scheme: Scheme,
    *,
    causal: bool = False,
) -> Work:
    if spec.project == "shared":
        raise UnsupportedError("shared keys do not say what they cost; give them a formula in lens/cost")
    source_width, keys = source
    head, groups = spec.head_width(width), spec.kv_heads or spec.heads
    value = spec.value_dim or head
    asking, offered = sides.vectors, sides.batch * keys
    meeting = Meeting(
        batch=sides.batch,
        heads=spec.heads,
        kv_heads=groups,
        queries=sides.length,
        keys=keys,
        head_dim=head,
        value_dim=value,
        rule=rule,
        window=spec.window,
        causal=causal,
        bias=scheme.bias,
        joined=scheme.joined,
        training=call.training,
        number=call.number,
        device=call.device,
    )
    work = (
        linear(asking, width, spec.heads * head, bias="q" in spec.bias)
        + _keys(spec, source_width, offered, groups * head, call)
        + linear(offered, source_width, groups * value, bias="v" in spec.bias)
        + linear(asking, spec.heads * value, width, bias="o" in spec.bias)
        + spec.kernel.work(meeting)
        + parts.scores(scheme.part, meeting, width)
    )
    if spec.project == "twice":
        work += _second(spec, width, sides.vectors)
    if spec.qk_norm is not None:
        for vectors in (asking * spec.heads, offered * groups):
            own = parts.norm(spec.qk_norm, vectors, head, call)
            work += replace(own, saved=own.saved + call.number * vectors * head)
    return work


def _keys(spec: Attention, width: int, vectors: int, size: int, call: Usage) -> Work:
    """Shared keys are the queries once more, at unit size: no parameters, but what the norm is given."""
    made = linear(vectors, width, size, bias="k" in spec.bias)
    if spec.project != "shared":
        return made
    return replace(made, parameters=0, saved=call.number * vectors * size + 4 * vectors * spec.heads)


def _second(spec: Attention, width: int, vectors: int) -> Work:
    """The projections of global tokens; they are used where the kernel itself makes tokens global."""
    head, groups = spec.head_width(width), spec.kv_heads or spec.heads
    sizes = {"q": spec.heads * head, "k": groups * head, "v": groups * (spec.value_dim or head)}
    made = [linear(vectors, width, size, bias=name in spec.bias) for name, size in sizes.items()]
    work = sum(made, Work())
    return work if getattr(spec.kernel, "always", ()) else Work(parameters=work.parameters)


@dataclass(frozen=True)
class BlockWork:
    """One layer in two halves: norms and dropouts on the stream, and what its sub-layers do inside.

    Splitting a layer over devices divides the inside; the stream is whole on each of them.
    """

    stream: Work
    inside: Work
    steps: int  # sub-layers
    last: int  # the operations of the last product, where recomputing stops before it

    @property
    def all(self) -> Work:
        return self.stream + self.inside


def block(
    spec: Block, width: int, sides: Sides, call: Usage, *, causal: bool, scheme: Scheme, whole: bool = False
) -> BlockWork:
    """Every sub-layer keeps two tensors of the stream: what its norm is given, and what the norm gives.

    `whole` blocks are computed again to their end.
    """
    steps = [
        mixer(spec.attention, width, sides, call, causal=causal, scheme=scheme),
        parts.feedforward(spec.feedforward, sides.vectors, width, call),
    ]
    if spec.cross is not None:
        steps.insert(1, cross(spec.cross, width, sides, call))
    stream = call.number * sides.vectors * width
    norm = parts.norm(spec.norm, sides.vectors, width, call)
    around = norm + Work(saved=call.noise(sides.vectors * width, spec.dropout))
    if spec.order == "parallel":  # all sub-layers read one and the same stream
        outside = (around + Work(saved=stream)).times(len(steps)) + Work(saved=stream)
    elif spec.order == "sandwich":
        outside = (around + norm + Work(saved=3 * stream)).times(len(steps))
    else:
        outside = (around + Work(saved=2 * stream)).times(len(steps))
    inside = sum(steps[1:], steps[0])
    return BlockWork(outside, inside, len(steps), 0 if whole else _last(spec, width, sides))


@dataclass(frozen=True)
class TowerWork:
    """The work of a tower by its parts; `blocks` is in the order of the layers, shared ones repeated."""

    embed: Work
    positions: Work
    blocks: tuple[BlockWork, ...]
    norm: Work
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
        return sum(work.flops for work in self._all)

    @property
    def backward(self) -> int:
        """A tower that recomputes goes through its blocks once more, up to the last tensor it needs."""
        again = sum(layer.all.flops - layer.last for layer in self.blocks) if self.recompute else 0
        return again + sum(work.backward for work in self._all)

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
    def _all(self) -> tuple[Work, ...]:
        return (self.embed, self.positions, *(layer.all for layer in self.blocks), self.norm)


def tower(spec: Tower, sides: Sides, call: Usage) -> TowerWork:
    heads, head_dim = spec.pattern[0].attention.sizes(spec.width)
    dims = Dims(width=spec.width, depth=spec.depth, heads=heads, head_dim=head_dim, causal=spec.causal)
    inner, stream = spec.embed.inner(spec.width), call.number * sides.vectors * spec.width
    scheme, whole = Scheme(spec.positions), spec.residual == "reversible"
    works = [
        block(b, spec.width, sides, call, causal=spec.causal, scheme=scheme, whole=whole)
        for b in spec.pattern
    ]
    # Shared layers are made of the first places of the pattern, as the tower builds them.
    own = spec.distinct or spec.depth
    order = [(i * own // spec.depth) % len(works) for i in range(spec.depth)]
    norm = Work()
    if spec.last_norm is not None:
        norm = parts.norm(spec.last_norm, sides.vectors, spec.out_width, call)
        norm += Work(saved=call.number * sides.vectors * spec.out_width)
    return TowerWork(
        embed=parts.embed(spec.embed, spec.width, sides.batch, sides.length, call),
        positions=parts.positions(spec.positions, dims, inner, sides.length, call),
        blocks=tuple(works[i] for i in order),
        norm=norm,
        stream=stream,
        bias=parts.shared_bias(spec.positions, dims, sides.length, call),
        distinct=spec.distinct,
        streams=_streams(spec),
    )


def _streams(spec: Tower) -> int | None:
    """A reversible tower finds its way back from the last two streams; another keeps one for each layer."""
    if spec.residual == "reversible":
        return 2
    return spec.depth if spec.recompute else None


def _last(spec: Block, width: int, sides: Sides) -> int:
    """Where nothing behind the last product is kept, computing a block again stops before it."""
    kept_behind = spec.order in ("post", "sandwich") or spec.dropout > 0
    hidden = getattr(spec.feedforward, "hidden", 0)
    return 0 if kept_behind else linear(sides.vectors, hidden, width, bias=False).flops
