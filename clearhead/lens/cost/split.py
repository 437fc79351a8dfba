"""A model split over devices: a spec, a job and a layout in; one device's bytes, operations and traffic out.

    data      every group of devices has its own rows, and gradients are summed
    zero      1: optimiser states, 2: also gradients, 3: also weights are sharded over the data groups
    tensor    every layer's matrices are cut, by heads and hidden channels; hidden states are whole everywhere
    pipeline  layers are divided into stages; micro-batches follow one another through them

Bytes are those of the fullest device. Traffic is what one device sends in one step, with ring algorithms.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from ...errors import InputError
from ...nn import Adaptive, AdaptiveHead, Attention, CallShape, Model, TokenHead, Tower
from .layers import BlockCost, TowerCost
from .total import MOMENTS, Whole, answered, cached_numbers, whole


@dataclass(frozen=True, kw_only=True)
class Layout:
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    recompute: bool = False

    @property
    def devices(self) -> int:
        return self.data * self.tensor * self.pipeline

    def __str__(self) -> str:
        ways = {"data": self.data, "tensor": self.tensor, "pipeline": self.pipeline}
        words = [" x ".join(f"{name} {count}" for name, count in ways.items() if count > 1) or "one device"]
        words += [f"ZeRO {self.zero}"] if self.zero else []
        words += ["recompute"] if self.recompute else []
        return ", ".join(words)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be done in one step, by all devices together."""

    batch: int
    length: int
    target: int | None = None
    training: bool = False
    number: int = 2  # bytes of one number of the stream and the weights

    def call(self, rows: int) -> CallShape:
        return CallShape(
            batch=rows,
            length=self.length,
            target=self.target,
            training=self.training,
            number=self.number,
            device="cuda",
        )


@dataclass(frozen=True, kw_only=True)
class Share:
    """One device's part of a layout."""

    layout: Layout
    rows: int  # computed at once
    parts: int  # of a group's rows, one after another
    weights: int
    gradients: int
    optimizer: int
    activations: int
    answer: int
    cache: int
    flops: int  # of one step
    sent: dict[str, int]  # bytes of one step, by the kind of split that sends them

    @property
    def memory(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.answer + self.cache

    @property
    def traffic(self) -> int:
        return sum(self.sent.values())

    @property
    def idle(self) -> float:
        """The part of its time that a stage waits for the pipeline to fill and to drain."""
        waiting = self.layout.pipeline - 1
        return waiting / (self.parts + waiting)

    def seconds(self, flops: float, link: float) -> float:
        """One step, at this many operations and bytes a second."""
        return self.flops / flops / (1 - self.idle) + self.traffic / link

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"memory": self.memory, "traffic": self.traffic, "idle": self.idle}


def check_layout(spec: Model, job: Job, layout: Layout) -> None:
    """Refuse a layout that cannot be."""
    heads = {a.kv_heads or a.heads for a in spec.nodes() if isinstance(a, Attention)}
    depth = sum(t.depth for t in spec.nodes() if isinstance(t, Tower))
    if any(count % layout.tensor for count in heads):
        raise InputError(f"tensor {layout.tensor} does not divide the {min(heads)} key/value heads")
    if layout.pipeline > depth:
        raise InputError(f"pipeline {layout.pipeline} is more than the {depth} layers")
    if layout.data > job.batch:
        raise InputError(f"data {layout.data} is more than the {job.batch} rows of a batch")
    if layout.zero and layout.data == 1:
        raise InputError(f"zero {layout.zero} spreads over data groups, and there is one; raise data")


def share(spec: Model, job: Job, layout: Layout, rows: int) -> Share:
    """What the fullest device holds and does when `rows` rows are computed at once."""
    group = -(-job.batch // layout.data)  # rows of one group of devices
    parts = -(-group // rows)
    work = _work(spec, job, rows, recompute=layout.recompute)
    stages = _stages(spec, work, job, layout, parts)
    own = max(stage.parameters for stage in stages)
    spread = [layout.data if layout.zero >= level else 1 for level in (1, 2, 3)]
    training = job.training
    return Share(
        layout=layout,
        rows=rows,
        parts=parts,
        weights=-(-job.number * own // spread[2]),
        gradients=-(-job.number * own // spread[1]) if training else 0,
        optimizer=-(-4 * (MOMENTS + (job.number < 4)) * own // spread[0]) if training else 0,
        activations=max(stage.activations for stage in stages) if training else 0,
        answer=_cut(answered(spec, job.call(rows)), layout.tensor),
        cache=0 if training else _cache(spec, job, layout, group),
        flops=_flops(work, job) * parts // (layout.tensor * layout.pipeline),
        sent=_sent(work, job, layout, parts, own),
    )


@dataclass(frozen=True)
class _Stage:
    parameters: int
    activations: int


@lru_cache(maxsize=256)
def _work(spec: Model, job: Job, rows: int, *, recompute: bool) -> Whole:
    edited = spec.edit(Tower, recompute=True) if recompute else spec
    return whole(edited, job.call(rows))


def _stages(spec: Model, work: Whole, job: Job, layout: Layout, parts: int) -> list[_Stage]:
    """Layers dealt out evenly; the first stage has the embeddings, the last one the head."""
    towers, t = list(work.towers.values()), layout.tensor
    layers = [(layer, side) for side in towers for layer in side.blocks]
    embeddings = sum(_cut(side.embed.parameters, t) + side.positions.parameters for side in towers)
    embeddings -= _cut(work.shared, t)
    end = _cut(work.head.parameters + work.second, t) + sum(side.norm.parameters for side in towers)
    if layout.pipeline > 1:
        end += _cut(_tied(spec), t)  # the table stands at both ends
    stages, count = [], layout.pipeline
    for s in range(count):
        here = layers[s * len(layers) // count : (s + 1) * len(layers) // count]
        first, last = s == 0, s == count - 1
        flight = min(count - s, parts)  # parts whose backward pass has not come yet
        kept = flight * sum(_kept(layer, side, t) for layer, side in here)
        kept += max((_again(layer, side, t) for layer, side in here), default=0)
        if first:
            kept += flight * sum(side.embed.saved + side.positions.saved for side in towers)
        if last:
            kept += work.head.saved // t + sum(side.norm.saved for side in towers)
        own = sum(_parameters(layer, side, t) for layer, side in here)
        stages.append(_Stage(own + first * embeddings + last * end, kept))
    return stages


def _cut(count: int, ways: int) -> int:
    return -(-count // ways)


def _parameters(layer: BlockCost, side: TowerCost, tensor: int) -> int:
    whole_layer = layer.stream.parameters + _cut(layer.inside.parameters, tensor)
    # Shared layers exist once, and are counted in equal parts.
    return _cut(whole_layer * (side.distinct or len(side.blocks)), len(side.blocks))


def _kept(layer: BlockCost, side: TowerCost, tensor: int) -> int:
    if side.streams is not None:
        return _cut(side.stream * side.streams, len(side.blocks))
    return layer.stream.saved + layer.inside.saved // tensor


def _again(layer: BlockCost, side: TowerCost, tensor: int) -> int:
    """What comes on top while a layer is computed again."""
    return layer.stream.saved + layer.inside.saved // tensor - side.stream if side.recompute else 0


def _tied(spec: Model) -> int:
    """The parameters of the embedding that the head reads, too."""
    head, side = spec.head, spec.head_tower
    if not (isinstance(head, AdaptiveHead) or (isinstance(head, TokenHead) and head.tied)):
        return 0
    embed, tables = side.embed, side.embed.table_widths(side.width)
    if not isinstance(embed, Adaptive):
        return head.vocab * tables[0]
    # The first band has a projection of the head's own; one table for all words is read by all others.
    ways = tables[1:] if embed.shrink > 1 else tables[: len(embed.cutoffs)]
    shared = side.width * sum(ways) if embed.projected(side.width) else 0
    return shared + sum(size * narrow for size, narrow in zip(embed.sizes, tables, strict=True))


def _cache(spec: Model, job: Job, layout: Layout, rows: int) -> int:
    kept = job.number * cached_numbers(spec, batch=rows, length=job.length, target=job.target)
    return _cut(kept, layout.tensor * layout.pipeline)


def _flops(work: Whole, job: Job) -> int:
    return work.flops + work.backward if job.training else work.flops


def _sent(work: Whole, job: Job, layout: Layout, parts: int, own: int) -> dict[str, int]:
    """Ring sums send 2 (n - 1) / n of a tensor, gathering and scattering (n - 1) / n of it each."""
    towers = list(work.towers.values())
    passes = (3 if layout.recompute else 2) if job.training else 1
    sent = {"data": 0, "tensor": 0, "pipeline": 0}
    if layout.data > 1 and job.training:
        # Spread weights are gathered for every pass of every part; gradients are scattered once.
        gathered = passes * parts + 1 if layout.zero == 3 else 2
        sent["data"] = gathered * job.number * own * (layout.data - 1) // layout.data
    if layout.tensor > 1:
        sums = sum(layer.steps * side.stream for side in towers for layer in side.blocks)
        each = 2 * (layout.tensor - 1) * sums // layout.tensor
        sent["tensor"] = passes * parts * each // layout.pipeline
    if layout.pipeline > 1:
        sent["pipeline"] = (2 if job.training else 1) * parts * max(side.stream for side in towers)
    return sent
