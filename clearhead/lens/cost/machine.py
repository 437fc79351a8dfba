"""This machine's speed: a spec and how it is used in; the seconds of a step here out. Nothing is built whole.

Layers of a tower cost alike, so a model of one layer and one of two are timed at the real width, rows and
length: their difference is a layer. What is too large to be timed is taken at the speed of matrix products.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import torch

from ...nn import CallShape, Model
from .total import Cost, cost

Clock = Callable[[], float]
SIDE = 1024  # of the square matrices that are multiplied
COPY_BYTES = 64_000_000  # bytes that are copied: more than a processor's own memory


@dataclass(frozen=True)
class Speed:
    flops: float  # operations a second in matrix products
    bandwidth: float  # bytes a second, read and written


@dataclass(frozen=True)
class Time:
    """The seconds of one step, and how they were found."""

    seconds: float
    timed: bool  # by layers of the model itself; otherwise by matrix products alone
    speed: Speed
    flops: int

    @property
    def share(self) -> float:
        """How much of the speed of matrix products is reached."""
        return self.flops / self.seconds / self.speed.flops


def measure(clock: Clock = time.perf_counter) -> Speed:
    """Matrix products of a size that suits every processor, and copies that none keeps to itself."""
    a, b = torch.ones(SIDE, SIDE), torch.ones(SIDE, SIDE)
    product = _seconds(lambda: torch.mm(a, b), clock)
    source, target = torch.ones(COPY_BYTES // 4), torch.empty(COPY_BYTES // 4)
    copy = _seconds(lambda: target.copy_(source), clock)
    return Speed(2 * SIDE**3 / product, 2 * COPY_BYTES / copy)


def step_time(spec: Model, usage: CallShape, clock: Clock = time.perf_counter) -> Time:
    """The seconds of a training step of AdamW, or of one forward pass."""
    speed, whole = measure(clock), _cost(spec, usage)
    flops = whole.training_flops if usage.training else whole.flops
    deep = _of_depth(spec, 2)
    if not _has_room(_cost(deep, usage)):
        return Time(flops / speed.flops, timed=False, speed=speed, flops=flops)
    one, two = (_timed(_of_depth(spec, depth), usage, clock) for depth in (1, 2))
    layers = sum(side.depth for side in spec.towers.values()) / len(spec.towers)
    seconds = one + max(two - one, 0.0) * (layers - 1)
    return Time(seconds, timed=True, speed=speed, flops=flops)


def _of_depth(spec: Model, depth: int) -> Model:
    """The same model with towers of so many layers, each with weights of its own."""
    short = {name: replace(t, depth=depth, distinct=None) for name, t in spec.tower_fields.items()}
    return replace(spec, **short)


def _has_room(needed: Cost) -> bool:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return needed.memory < free / 2


def _cost(spec: Model, usage: CallShape) -> Cost:
    return cost(spec, batch=usage.batch, length=usage.length, target=usage.target, training=usage.training)


def _timed(spec: Model, usage: CallShape, clock: Clock) -> float:
    model = spec.build()
    key = torch.Generator().manual_seed(0)
    lengths = (usage.length, usage.target or usage.length)
    inputs = [
        side.embed.example(usage.batch, length, key)
        for side, length in zip(spec.towers.values(), lengths, strict=False)
    ]
    if not usage.training:
        with torch.no_grad():
            return _seconds(lambda: model.eval()(*inputs), clock)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model.train()

    def step() -> None:
        answer = model(*inputs)
        answer.logsumexp(-1).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with torch.random.fork_rng(devices=[]):
        return _seconds(step, clock)


def _seconds(work: Callable[[], object], clock: Clock, least: int = 5, budget: float = 1.0) -> float:
    """The median of some calls; the first one warms up."""
    work()
    took: list[float] = []
    began = time.perf_counter()
    while len(took) < least or time.perf_counter() - began < budget / 4:
        start = clock()
        work()
        took.append(clock() - start)
        if time.perf_counter() - began > budget and len(took) >= 3:
            break
    return median(took)
