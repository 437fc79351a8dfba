"""A model split over devices: a spec, a job and a layout in; memory, FLOPs and traffic of one device out.

    data      every group of devices has its own rows, and gradients are summed
    zero      1: optimiser states, 2: also gradients, 3: also weights are sharded over the data groups
    tensor    matrices are split by heads and hidden channels; each device has the full hidden states
    pipeline  layers are divided into stages; micro-batches follow one another through them

Memory is that of the device that needs most. Traffic is what one device sends in one step, with ring
algorithms.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from ...errors import InputError
from ...nn import Adaptive, AdaptiveHead, Attention, CallShape, Model, TokenHead, Tower
from .blocks import BlockCost
from .layers import TowerCost
from .total import MOMENTS, ModelCost, cached_numbers, logits_bytes, model_cost


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
        sizes = {"data": self.data, "tensor": self.tensor, "pipeline": self.pipeline}
        words = [" x ".join(f"{name} {count}" for name, count in sizes.items() if count > 1) or "one device"]
        words += [f"ZeRO {self.zero}"] if self.zero else []
        words += ["recompute"] if self.recompute else []
        return ", ".join(words)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The work of one step, for all devices together."""

    batch: int
    length: int
    target: int | None = None
    training: bool = False
    number: int = 2  # bytes per number of weights and activations

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
    rows: int  # per micro-batch
    parts: int  # number of micro-batches
    weights: int
    gradients: int
    optimizer: int
    activations: int
    answer: int
    cache: int
    flops: int  # of one step
    sent: dict[str, int]  # bytes per step, by kind of parallelism

    @property
    def memory(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.answer + self.cache

    @property
    def traffic(self) -> int:
        return sum(self.sent.values())

    @property
    def idle(self) -> float:
        """The share of time that a stage waits while the pipeline fills and drains."""
        waiting = self.layout.pipeline - 1
        return waiting / (self.parts + waiting)

    def seconds(self, flops: float, link: float) -> float:
        """The time of one step at this many FLOP/s and bytes per second."""
        return self.flops / flops / (1 - self.idle) + self.traffic / link

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"memory": self.memory, "traffic": self.traffic, "idle": self.idle}


def check_layout(spec: Model, job: Job, layout: Layout) -> None:
    """Raise an error for an impossible layout."""
    heads = {a.kv_heads or a.heads for a in spec.nodes() if isinstance(a, Attention)}
    depth = sum(t.depth for t in spec.nodes() if isinstance(t, Tower))
    if any(count % layout.tensor for count in heads):
        raise InputError(f"tensor {layout.tensor} does not divide the {min(heads)} key/value heads")
    if layout.pipeline > depth:
        raise InputError(f"pipeline {layout.pipeline} is more than the {depth} layers")
    if layout.data > job.batch:
        raise InputError(f"data {layout.data} is more than the {job.batch} rows of a batch")
    if layout.zero and layout.data == 1:
        raise InputError(f"zero {layout.zero} shards over the data groups, and there is one; raise data")


def share(spec: Model, job: Job, layout: Layout, rows: int) -> Share:
    """The share of the device that needs most memory, with `rows` rows per micro-batch."""
    group = -(-job.batch // layout.data)  # rows of one group of devices
    parts = -(-group // rows)
    total = _model_cost(spec, job, rows, recompute=layout.recompute)
    stages = _stages(spec, total, layout, parts)
    own = max(stage.parameters for stage in stages)
    shards = [layout.data if layout.zero >= level else 1 for level in (1, 2, 3)]
    training = job.training
    flops = total.flops + total.backward if training else total.flops
    cache = job.number * cached_numbers(spec, batch=group, length=job.length, target=job.target)
    return Share(
        layout=layout,
        rows=rows,
        parts=parts,
        weights=-(-job.number * own // shards[2]),
        gradients=-(-job.number * own // shards[1]) if training else 0,
        optimizer=-(-4 * (MOMENTS + (job.number < 4)) * own // shards[0]) if training else 0,
        activations=max(stage.activations for stage in stages) if training else 0,
        answer=_cut(logits_bytes(spec, job.call(rows)), layout.tensor),
        cache=0 if training else _cut(cache, layout.tensor * layout.pipeline),
        flops=flops * parts // (layout.tensor * layout.pipeline),
        sent=_traffic(total, job, layout, parts, own),
    )


@dataclass(frozen=True)
class _Stage:
    parameters: int
    activations: int


@lru_cache(maxsize=256)
def _model_cost(spec: Model, job: Job, rows: int, *, recompute: bool) -> ModelCost:
    edited = spec.edit(Tower, recompute=True) if recompute else spec
    return model_cost(edited, job.call(rows))


def _stages(spec: Model, total: ModelCost, layout: Layout, parts: int) -> list[_Stage]:
    """Layers are divided evenly; the first stage has the embeddings, the last one the head."""
    towers, t = list(total.towers.values()), layout.tensor
    layers = [(layer, side) for side in towers for layer in side.blocks]
    embeddings = sum(_cut(side.embed.parameters, t) + side.positions.parameters for side in towers)
    embeddings -= _cut(total.shared, t)
    end = _cut(total.head.parameters + total.second, t) + sum(side.end.parameters for side in towers)
    if layout.pipeline > 1:
        end += _cut(_tied(spec), t)  # a tied embedding is on the first and on the last stage
    stages, count = [], layout.pipeline
    for s in range(count):
        here = layers[s * len(layers) // count : (s + 1) * len(layers) // count]
        first, last = s == 0, s == count - 1
        in_flight = min(count - s, parts)  # micro-batches whose backward pass has not started
        saved = in_flight * sum(_saved(layer, side, t) for layer, side in here)
        saved += max((_recomputed(layer, side, t) for layer, side in here), default=0)
        if first:
            saved += in_flight * sum(side.embed.saved + side.positions.saved for side in towers)
        if last:
            saved += total.head.saved // t + sum(side.end.saved for side in towers)
        own = sum(_parameters(layer, side, t) for layer, side in here)
        stages.append(_Stage(own + first * embeddings + last * end, saved))
    return stages


def _cut(count: int, ways: int) -> int:
    """Division that rounds up."""
    return -(-count // ways)


def _parameters(layer: BlockCost, side: TowerCost, tensor: int) -> int:
    whole_layer = layer.stream.parameters + _cut(layer.inside.parameters, tensor)
    # Layers that share weights are counted once, in equal parts.
    return _cut(whole_layer * len(set(side.weights)), len(side.blocks))


def _saved(layer: BlockCost, side: TowerCost, tensor: int) -> int:
    if side.held is not None:
        return _cut(side.held, len(side.blocks))
    return layer.stream.saved + layer.inside.saved // tensor


def _recomputed(layer: BlockCost, side: TowerCost, tensor: int) -> int:
    """Additional bytes while a layer is recomputed."""
    return layer.stream.saved + layer.inside.saved // tensor - side.stream if side.recompute else 0


def _tied(spec: Model) -> int:
    """The parameters of the embedding that the head shares."""
    head, side = spec.head, spec.head_tower
    if not (isinstance(head, AdaptiveHead) or (isinstance(head, TokenHead) and head.tied)):
        return 0
    embed, tables = side.embed, side.embed.table_widths(side.width)
    if not isinstance(embed, Adaptive):
        return head.vocab * tables[0]
    # The head has its own projection of the first band, and shares those of all others.
    projections = tables[1:] if embed.shrink > 1 else tables[: len(embed.cutoffs)]
    shared = side.width * sum(projections) if embed.projected(side.width) else 0
    return shared + sum(size * narrow for size, narrow in zip(embed.sizes, tables, strict=True))


def _traffic(total: ModelCost, job: Job, layout: Layout, parts: int, own: int) -> dict[str, int]:
    """A ring all-reduce sends 2 (n - 1) / n of a tensor; all-gather and reduce-scatter (n - 1) / n each."""
    towers = list(total.towers.values())
    passes = (3 if layout.recompute else 2) if job.training else 1
    sent = {"data": 0, "tensor": 0, "pipeline": 0}
    if layout.data > 1 and job.training:
        # With ZeRO 3 weights are gathered for every pass of every micro-batch; gradients are scattered once.
        gathered = passes * parts + 1 if layout.zero == 3 else 2
        sent["data"] = gathered * job.number * own * (layout.data - 1) // layout.data
    if layout.tensor > 1:
        sums = sum(layer.steps * side.stream for side in towers for layer in side.blocks)
        each = 2 * (layout.tensor - 1) * sums // layout.tensor
        sent["tensor"] = passes * parts * each // layout.pipeline
    if layout.pipeline > 1:
        sent["pipeline"] = (2 if job.training else 1) * parts * max(side.stream for side in towers)
    return sent
