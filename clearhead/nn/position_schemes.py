"""Position schemes: learned and sinusoidal vectors, ALiBi, T5's relative buckets. Rotary ones are in `rope`.

Shape suffixes: B batch, H heads, T tokens, Q queries, K keys, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..errors import InputError, SpecError
from ..spec import AboveOne, Amount, Count, Dims
from .cost import INDEX_BYTES, HiddenShape, PartCost, PositionCost
from .distance_scores import DistanceScores
from .layers import EmbeddingTable
from .positions import BoundPositions, Positions, PositionScheme
from .view import View


@dataclass(frozen=True, kw_only=True)
class Learned(Positions):
    """One trained vector per position (BERT, GPT-2). `offset`: first index (RoBERTa, BART)."""

    length: Count
    offset: Amount = 0

    @property
    def max_length(self) -> int | None:
        return self.length

    def build(self, dims: Dims, width: int) -> PositionScheme:
        return _Learned(self, width)

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        parameters = shape.width * (self.length + self.offset)
        return PositionCost(tower=PartCost(parameters=parameters, saved=INDEX_BYTES * shape.length))


class _Learned(PositionScheme):
    def __init__(self, spec: Learned, width: int) -> None:
        super().__init__()
        self.length, self.offset = spec.length, spec.offset
        self.table = EmbeddingTable(spec.length + spec.offset, width)

    def add(self, x_BTD: Tensor, pos_BT: Tensor) -> Tensor:
        if pos_BT.device.type != "meta" and (last := int(pos_BT.max())) >= self.length:
            raise InputError(
                f"a sequence of {last + 1} tokens is longer than the {self.length} learned positions; "
                f"shorten the input"
            )
        added: Tensor = self.table(pos_BT + self.offset)
        return x_BTD + added


@dataclass(frozen=True, kw_only=True)
class Sinusoidal(Positions):
    """Fixed waves of increasing wavelength (Vaswani 2017), sine and cosine side by side or in two halves."""

    layout: Literal["interleaved", "halves"] = "interleaved"
    base: AboveOne = 10000.0
    offset: Amount = 0  # position of the first token (M2M-100)
    endpoint: bool = False  # as in numpy.linspace: the slowest wave is slower by `base` itself (M2M-100)

    def build(self, dims: Dims, width: int) -> PositionScheme:
        if self.endpoint and (width % 2 or width < 4):
            raise SpecError(f"Sinusoidal(endpoint=True) needs an even width of 4 or more; given {width}")
        return _Sinusoidal(self)

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        return PositionCost()


class _Sinusoidal(PositionScheme):
    def __init__(self, spec: Sinusoidal) -> None:
        super().__init__()
        self.spec = spec

    def add(self, x_BTD: Tensor, pos_BT: Tensor) -> Tensor:
        return x_BTD + waves(pos_BT, x_BTD.shape[-1], self.spec).type_as(x_BTD)


def waves(pos_BT: Tensor, width: int, spec: Sinusoidal) -> Tensor:
    """The waves themselves, in float64: any position, any width (an odd one has one more sine)."""
    pairs = torch.arange(0, width, 2, device=pos_BT.device, dtype=torch.float64)
    steps = width - 2 if spec.endpoint else width
    angle = (pos_BT[..., None] + spec.offset) * spec.base ** (-pairs / steps)
    sine, cosine = angle.sin(), angle.cos()[..., : width // 2]
    if spec.layout == "halves":
        return torch.cat([sine, cosine], dim=-1)
    woven = torch.empty(*pos_BT.shape, width, device=pos_BT.device, dtype=torch.float64)
    woven[..., 0::2], woven[..., 1::2] = sine, cosine
    return woven


@dataclass(frozen=True, kw_only=True)
class Alibi(Positions):
    """A penalty on distance, steeper in some heads than in others (Press 2021)."""

    scale: float = 1.0  # of all penalties (Falcon: head_dim ** -0.5)
    number: Literal["stream", "bfloat16"] = "stream"  # bfloat16: slope times position is rounded (Falcon)

    relative: ClassVar[bool] = True

    def build(self, dims: Dims, width: int) -> PositionScheme:
        return _Alibi(self, dims.heads)

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        """A fixed bias is kept by the kernel; joined with a causal mask it is held twice."""
        size = shape.number * dims.heads * shape.length * shape.keys
        held = size if dims.causal else 0
        return PositionCost(tower=PartCost(saved=size), bias="fixed", shared_bias=held)


class _Alibi(PositionScheme):
    def __init__(self, spec: Alibi, heads: int) -> None:
        super().__init__()
        self.spec, self.heads = spec, heads

    def bind(self, view: View) -> BoundPositions:
        return _BoundAlibi(self.spec, self.heads, view)


class _BoundAlibi(BoundPositions):
    def __init__(self, spec: Alibi, heads: int, view: View) -> None:
        self.spec, self.heads, self.view = spec, heads, view
        self._bias: Tensor | None = None

    def bias(self, layer: int, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor:
        if self._bias is None or self._bias.dtype != q_BHQE.dtype:
            self._bias = self._compute(q_BHQE)
        return self._bias

    def _compute(self, like: Tensor) -> Tensor:
        """Penalties need float32 even where the stream is half precision."""
        exact = torch.float64 if like.dtype == torch.float64 else torch.float32
        slope = torch.tensor(_slopes(self.heads), device=like.device, dtype=exact)[:, None, None]
        q_pos, k_pos = self.view.q_pos[:, None, :, None], self.view.k_pos[:, None, None, :]
        if self.spec.number == "bfloat16":
            penalty = ((slope.bfloat16() * q_pos).to(exact) - (slope.bfloat16() * k_pos).to(exact)).abs()
        else:
            penalty = slope * (q_pos - k_pos).abs()
        return (penalty * -self.spec.scale).to(like.dtype)


def _slopes(heads: int) -> list[float]:
    """A geometric series for a power of two; otherwise every other one of the next series fills up."""
    whole = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    between = [2 ** (-8 * (i + 1) / (2 * whole)) for i in range(0, 2 * whole, 2)]
    return first + between[: heads - whole]


@dataclass(frozen=True, kw_only=True)
class RelativeBuckets(Positions):
    """A learned score per distance bucket and head, shared by all layers (T5).

    Where tokens also attend to summaries of blocks there is a second table, for distances in blocks (LongT5).
    """

    buckets: Count = 32
    max_distance: Count = 128

    relative: ClassVar[bool] = True

    def check(self) -> None:
        if self.buckets < 4 or self.max_distance <= self.buckets // 2:
            raise SpecError(f"{self}: expected 4 buckets or more, and max_distance above half of them")

    def build(self, dims: Dims, width: int) -> PositionScheme:
        return _BlockBuckets(self, dims) if dims.summaries else _Buckets(self, dims)

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        if dims.summaries:
            distances = 4 * shape.length + 1
            tables = PartCost(parameters=2 * self.buckets * dims.heads, saved=INDEX_BYTES * distances)
            size = 2 * shape.number * dims.heads * distances
            return PositionCost(tower=tables, bias="learned", shared_bias=size)
        pairs = shape.length * shape.keys
        table = PartCost(parameters=self.buckets * dims.heads, saved=INDEX_BYTES * pairs)
        return PositionCost(tower=table, bias="learned", shared_bias=shape.number * dims.heads * pairs)


class _Buckets(PositionScheme):
    def __init__(self, spec: RelativeBuckets, dims: Dims) -> None:
        super().__init__()
        self.spec, self.bidirectional = spec, not dims.causal
        self.table = EmbeddingTable(spec.buckets, dims.heads)

    def bind(self, view: View) -> BoundPositions:
        ahead = view.k_pos[:, None, :] - view.q_pos[:, :, None]
        table: Tensor = self.table(self._bucket(ahead))
        return _SharedBias(table.permute(0, 3, 1, 2))

    def _bucket(self, ahead: Tensor) -> Tensor:
        """Near distances get a bucket each; far ones share buckets that widen logarithmically."""
        count, start = self.spec.buckets, torch.zeros_like(ahead)
        if self.bidirectional:
            count //= 2
            start = (ahead > 0).long() * count
        distance = ahead.abs() if self.bidirectional else (-ahead).clamp(min=0)
        near = count // 2
        far = (distance.float().clamp(min=1) / near).log() / math.log(self.spec.max_distance / near)
        bucket = (near + (far * (count - near)).long()).clamp(max=count - 1)
        return start + torch.where(distance < near, distance, bucket)


class _BlockBuckets(_Buckets):
    """With a second table. Scores are bound by distance, not by pair: memory grows with the length alone."""

    def __init__(self, spec: RelativeBuckets, dims: Dims) -> None:
        super().__init__(spec, dims)
        self.block_table = EmbeddingTable(spec.buckets, dims.heads)

    def bind(self, view: View) -> BoundPositions:
        # Twice the length: queries are computed in tiles, the last of which may end after the text.
        reach = 2 * view.keys
        bucket = self._bucket(torch.arange(-reach, reach + 1, device=view.k_pos.device))
        return _BoundDistances(DistanceScores(reach, self.table(bucket).T, self.block_table(bucket).T), view)


class _BoundDistances(BoundPositions):
    distances: DistanceScores

    def __init__(self, distances: DistanceScores, view: View) -> None:
        self.distances, self.view = distances, view

    def bias(self, layer: int, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor:
        """Of all pairs of tokens, for a layer without summaries."""
        view, scores_HA = self.view, self.distances.tokens_HA
        if view.real_BK is None:  # positions are slots
            bias_HQK = self.distances.by_offset(scores_HA, -view.start, view.queries, view.keys)
            return bias_HQK[None].type_as(q_BHQE)
        ahead_BQK = view.k_pos[:, None, :] - view.q_pos[:, :, None]
        return scores_HA[:, ahead_BQK + self.distances.reach].transpose(0, 1).type_as(q_BHQE)


class _SharedBias(BoundPositions):
    """One bias for all layers, independent of queries and keys."""

    def __init__(self, bias_BHQK: Tensor) -> None:
        self._bias = bias_BHQK

    def bias(self, layer: int, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor:
        if self._bias.dtype != q_BHQE.dtype:
            self._bias = self._bias.type_as(q_BHQE)
        return self._bias
