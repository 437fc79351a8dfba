"""The work of the smaller parts: a formula for each kind of norm, feed-forward layer, door, scheme and head.

A part counts what is kept of the tensors it makes inside. Its input and its answer are counted by whoever
stands around it, except where a docstring says otherwise. Vectors are tokens times rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from itertools import pairwise

from ...errors import UnsupportedError
from ...nn.embed import Embed, Tokens
from ...nn.feedforward import MLP, FeedForward, Gated
from ...nn.heads import Head, Labels, Pool, Pooled, Span, Tags, TokenHead, Transform
from ...nn.long.adaptive import Adaptive, AdaptiveHead
from ...nn.long.axial import Axial
from ...nn.long.relative import RelativeWaves
from ...nn.norm import RMS, Layer, Norm
from ...nn.positions import Alibi, Learned, NoPositions, Positions, RelativeBuckets, Sinusoidal
from ...nn.rope import Rope
from ...nn.work import Bias, Meeting, Usage, Work, product
from ...spec import Dims, Spec

INDEX = 8  # bytes of a whole number
WAVE = 8  # bytes of a number of a wave, which is made in float64

# What an activation keeps: how many tensors besides its answer, and whether it keeps the answer.
ACTIVATIONS: dict[str, tuple[int, bool]] = {
    "relu": (0, True),
    "gelu": (1, False),
    "gelu_tanh": (1, False),
    "silu": (1, False),
    "quick_gelu": (2, False),  # its input, and the sigmoid
    "tanh": (0, True),
}


def no_formula(part: Spec) -> UnsupportedError:
    kind = type(part).__name__
    return UnsupportedError(f"{kind} does not say what it costs; give it a formula in lens/cost")


def linear(vectors: int, inputs: int, outputs: int, *, bias: bool) -> Work:
    """A linear layer. Its input is kept, and counted by whoever made it."""
    return product(1, vectors, inputs, outputs) + Work(parameters=outputs * (inputs + bias))


@singledispatch
def norm(part: Norm, vectors: int, width: int, call: Usage) -> Work:
    """Its input is kept by either kind, and counted by the block."""
    raise no_formula(part)


@norm.register
def _(part: Layer, vectors: int, width: int, call: Usage) -> Work:
    return Work(parameters=width * (1 + part.bias), saved=2 * 4 * vectors)  # mean and deviation


@norm.register
def _(part: RMS, vectors: int, width: int, call: Usage) -> Work:
    """The scaled vectors, and one root each; half precision is widened, and the wide copy is kept, too."""
    wide = 0 if call.number >= 4 else 4 * vectors * width
    return Work(parameters=width, saved=call.number * vectors * width + 4 * vectors + wide)


@singledispatch
def feedforward(part: FeedForward, vectors: int, width: int, call: Usage) -> Work:
    raise no_formula(part)


@feedforward.register
def _(part: MLP, vectors: int, width: int, call: Usage) -> Work:
    numbers = vectors * part.hidden
    besides, answer = ACTIVATIONS[part.act]
    # `down` keeps what it is given: the activation's answer or, after a dropout, another tensor.
    dropped = call.training and part.dropout > 0
    tensors = besides + (answer or not dropped) + dropped
    return (
        linear(vectors, width, part.hidden, bias=part.bias)
        + linear(vectors, part.hidden, width, bias=part.bias)
        + Work(saved=call.number * numbers * tensors + call.noise(numbers, part.dropout))
    )


@feedforward.register
def _(part: Gated, vectors: int, width: int, call: Usage) -> Work:
    numbers = vectors * part.hidden
    tensors = ACTIVATIONS[part.act][0] + 3  # the activation's answer, `up`, and what `down` is given
    return (
        linear(vectors, width, part.hidden, bias=part.bias).times(2)
        + linear(vectors, part.hidden, width, bias=part.bias)
        + Work(saved=call.number * numbers * tensors + call.noise(numbers, part.dropout))
    )


@singledispatch
def embed(part: Embed, width: int, batch: int, length: int, call: Usage) -> Work:
    raise no_formula(part)


@embed.register
def _(part: Tokens, width: int, batch: int, length: int, call: Usage) -> Work:
    vectors, inner = batch * length, part.inner(width)
    work = Work(parameters=inner * (part.vocab + part.types))
    work += Work(saved=(INDEX * vectors if part.types else 0) + call.noise(vectors * inner, part.dropout))
    if part.norm is not None:
        work += norm(part.norm, vectors, inner, call) + Work(saved=call.number * vectors * inner)
    if part.factor is not None:
        work += linear(vectors, inner, width, bias=True) + Work(saved=call.number * vectors * inner)
    return work


@embed.register
def _(part: Adaptive, width: int, batch: int, length: int, call: Usage) -> Work:
    """Every token is looked up in every band: an index and a narrow vector each, and flags to choose by."""
    vectors, sizes = batch * length, part.sizes
    work = Work(saved=call.noise(vectors * width, part.dropout) + vectors * (len(sizes) - 1))
    for size, narrow in zip(sizes, part.tables(width), strict=True):
        work += Work(parameters=narrow * size, saved=INDEX * vectors)
        if part.projected(width):
            work += linear(vectors, narrow, width, bias=False) + Work(saved=call.number * vectors * narrow)
    return work


@singledispatch
def positions(part: Positions, dims: Dims, width: int, length: int, call: Usage) -> Work:
    raise no_formula(part)


@positions.register(NoPositions)
@positions.register(Sinusoidal)
def _(part: Positions, dims: Dims, width: int, length: int, call: Usage) -> Work:
    return Work()


@positions.register
def _(part: Learned, dims: Dims, width: int, length: int, call: Usage) -> Work:
    return Work(parameters=width * (part.length + part.offset), saved=INDEX * length)


@positions.register
def _(part: Axial, dims: Dims, width: int, length: int, call: Usage) -> Work:
    (rows, columns), (one, two) = part.shape, part.widths
    return Work(parameters=rows * one + columns * two, saved=2 * INDEX * length)


@positions.register
def _(part: Rope, dims: Dims, width: int, length: int, call: Usage) -> Work:
    """One table of cosines and one of sines for all layers."""
    return Work(saved=2 * call.number * length * int(dims.head_dim * part.fraction))


@positions.register
def _(part: Alibi, dims: Dims, width: int, length: int, call: Usage) -> Work:
    return Work(saved=call.number * dims.heads * length * length)


@positions.register
def _(part: RelativeBuckets, dims: Dims, width: int, length: int, call: Usage) -> Work:
    return Work(parameters=part.buckets * dims.heads, saved=INDEX * length * length)


@positions.register
def _(part: RelativeWaves, dims: Dims, width: int, length: int, call: Usage) -> Work:
    """Parameters of all layers, and the one table of who stands how far from whom; see `scores`."""
    inner, pairs = dims.heads * dims.head_dim, 1 if part.shared else dims.depth
    return Work(parameters=inner * (dims.depth * dims.width + 2 * pairs), saved=INDEX * length * length)


@singledispatch
def scores(part: Positions, at: Meeting, width: int) -> Work:
    """What a scheme computes in every layer anew, to know what it adds to the scores; most need nothing."""
    return Work()


@scores.register
def _(part: RelativeWaves, at: Meeting, width: int) -> Work:
    """The waves projected, queries against them, and keys against `u`.

    Kept are the waves in the numbers of the stream; queries with `v` on top; the projected waves and `u`,
    copied for every row; keys, one for each query head; and the scores of all distances, to pick from.
    """
    rows, distances = at.batch * at.heads, _distances(at.keys, causal=at.causal)
    waves = product(1, distances, width, at.heads * at.head_dim)
    waves = replace(waves, backward=waves.flops)  # nobody asks for the gradient of a wave
    met = product(rows, at.queries, at.head_dim, distances) + product(rows, at.keys, at.head_dim, 1)
    vectors = rows * (at.queries + distances + at.keys + 1) * at.head_dim
    far = rows * at.queries * distances
    return waves + met + Work(saved=at.number * (distances * width + vectors + far))


def _distances(length: int, *, causal: bool) -> int:
    """How many there are between two tokens of a text; ahead of a decoder there are none."""
    return length if causal else 2 * length - 1


def shared_bias(part: Positions, dims: Dims, length: int, call: Usage) -> int:
    """The bytes of a bias that all layers share, held where they are recomputed and otherwise not kept.

    A fixed one is kept either way; joined with a mask it is held twice. Waves are held as they were made.
    """
    if isinstance(part, RelativeWaves):
        return WAVE * dims.width * _distances(length, causal=dims.causal)
    held = bias_of(part) == "learned" or (bias_of(part) == "fixed" and dims.causal)
    return call.number * dims.heads * length * length if held else 0


def bias_of(part: Positions) -> Bias:
    """What a scheme adds to the scores."""
    if isinstance(part, RelativeBuckets):
        return "learned"
    if isinstance(part, RelativeWaves):
        return "asked"
    return "fixed" if isinstance(part, Alibi) else "none"


@singledispatch
def head(part: Head, width: int, tables: tuple[int, ...], batch: int, length: int, call: Usage) -> Work:
    """A head counts the states it is given, too: some keep them, some only what they make of them."""
    raise no_formula(part)


@head.register
def _(part: TokenHead, width: int, tables: tuple[int, ...], batch: int, length: int, call: Usage) -> Work:
    vectors, inner = batch * length, tables[0] if part.tied else width
    work = product(1, vectors, inner, part.vocab)
    work += Work(parameters=part.vocab * (part.bias + (0 if part.tied else inner)))
    if part.transform is not None:
        work += transform(part.transform, vectors, width, inner, call)
    logits = 0 if part.cap is None else vectors * part.vocab  # the squashing keeps its answer
    return work + Work(saved=call.number * (vectors * inner + logits))


@head.register
def _(part: AdaptiveHead, width: int, tables: tuple[int, ...], batch: int, length: int, call: Usage) -> Work:
    """The tables are the embedding's. Logarithms are kept of the first choice and of every band."""
    vectors, edges, further = batch * length, (0, *part.cutoffs, part.vocab), len(part.cutoffs)
    inner, projected = part.inner_width or width, part.inner_width is not None
    work = product(1, vectors, inner, edges[1])
    work += linear(vectors, width, inner, bias=False) if projected else Work()
    work += linear(vectors, inner, further, bias=True) if further else Work()
    kept = width + projected * inner + further + part.vocab
    for i, (first, end) in enumerate(pairwise(edges[1:]), start=1):
        narrow = tables[min(i, len(tables) - 1)] if projected else width  # one table may be cut for all bands
        work += product(1, vectors, narrow, end - first)
        if projected:
            work += product(1, vectors, width, narrow)
            kept += narrow
    return work + Work(parameters=part.vocab, saved=call.number * vectors * kept)


@head.register
def _(part: Labels, width: int, tables: tuple[int, ...], batch: int, length: int, call: Usage) -> Work:
    inner = (part.transform and part.transform.width) or width
    work = linear(batch, inner, part.count, bias=part.bias)
    if part.transform is not None:
        work += transform(part.transform, batch, width, inner, call)
    kept = call.number * batch * inner + call.noise(batch * inner, part.dropout)
    return work + Work(saved=kept + pooling(part.pool, batch, length, width))


@head.register(Tags)
@head.register(Span)
def _(part: Tags | Span, width: int, tables: tuple[int, ...], batch: int, length: int, call: Usage) -> Work:
    vectors = batch * length
    kept = call.number * vectors * width + call.noise(vectors * width, part.dropout)
    return linear(vectors, width, part.count, bias=part.bias) + Work(saved=kept)


@head.register
def _(part: Pooled, width: int, tables: tuple[int, ...], batch: int, length: int, call: Usage) -> Work:
    work = linear(batch, width, part.count, bias=False) if part.count else Work()
    kept = width if part.count else 0
    unit = (part.count or width) + 2 if part.unit else 0  # the vector, and its length twice
    return work + Work(saved=call.number * batch * (kept + unit) + pooling(part.pool, batch, length, width))


def answer(part: Head | None, width: int, batch: int, length: int) -> int:
    """How many numbers a call gives back."""
    if part is None:
        return batch * length * width
    if isinstance(part, Labels | Pooled):
        return batch * (part.count or width)
    return batch * length * int(getattr(part, "vocab", 0) or getattr(part, "count", width))


def pooling(pool: Pool, batch: int, length: int, width: int) -> int:
    """The bytes kept to find the way back from one vector to many: which token was taken, or was real."""
    if pool in ("first", "last"):
        return 2 * INDEX * batch
    return batch * length + INDEX * batch * (width if pool == "max" else 1)


def transform(part: Transform, vectors: int, width: int, inner: int, call: Usage) -> Work:
    """A dense layer, an activation and perhaps a norm; what it is given is kept."""
    besides, _ = ACTIVATIONS[part.act]
    # The activation's answer is kept by the norm; without one it is what the head is given, counted there.
    tensors = besides + (1 if part.norm is not None else 0)
    work = linear(vectors, width, inner, bias=True)
    work += Work(saved=call.number * vectors * (width + tensors * inner))
    return work if part.norm is None else work + norm(part.norm, vectors, inner, call)
