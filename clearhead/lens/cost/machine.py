"""Step time on this machine: a spec and the shape of a call in; the seconds of one step out.

The whole model is not built. All layers of a tower cost the same, so models of one and of two layers are
timed at full width, batch size and length; the difference is the time of a layer. If they do not fit in
memory, the time is estimated from the speed of matrix products.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import torch

from ...malloc import available_memory
from ...nn import CallShape, Model
from .total import Cost, cost

Clock = Callable[[], float]
SIDE = 1024  # of the square matrices that are multiplied
COPY_BYTES = 64_000_000  # size of a copy: larger than the caches of a processor


@dataclass(frozen=True)
class Speed:
    flops: float  # FLOP/s in matrix products
    bandwidth: float  # bytes per second, read and written


@dataclass(frozen=True)
class Time:
    """The seconds of one step, and how they were measured."""

    seconds: float
    timed: bool  # with layers of the model; otherwise estimated from matrix products
    speed: Speed
    flops: int

    @property
    def share(self) -> float:
        """FLOP/s of the step relative to those of matrix products."""
        return self.flops / self.seconds / self.speed.flops


def measure(clock: Clock = time.perf_counter) -> Speed:
    """Measure the speed of matrix products and of copies in main memory."""
    a, b = torch.ones(SIDE, SIDE), torch.ones(SIDE, SIDE)
    product = _seconds(lambda: torch.mm(a, b), clock)
    source, target = torch.ones(COPY_BYTES // 4), torch.empty(COPY_BYTES // 4)
    copy = _seconds(lambda: target.copy_(source), clock)
    return Speed(2 * SIDE**3 / product, 2 * COPY_BYTES / copy)


def step_time(spec: Model, usage: CallShape, clock: Clock = time.perf_counter) -> Time:
    """The seconds of a training step with AdamW, or of one forward pass."""
    speed, total = measure(clock), _cost(spec, usage)
    flops = total.training_flops if usage.training else total.flops
    free_memory = available_memory()
    if free_memory is not None and _cost(_with_depth(spec, 2), usage).memory >= free_memory / 2:
        return Time(flops / speed.flops, timed=False, speed=speed, flops=flops)
    one, two = (_measure_step(_with_depth(spec, depth), usage, clock) for depth in (1, 2))
    layers = sum(side.depth for side in spec.towers.values()) / len(spec.towers)
    seconds = one + max(two - one, 0.0) * (layers - 1)
    return Time(seconds, timed=True, speed=speed, flops=flops)


def _with_depth(spec: Model, depth: int) -> Model:
    """The same model with towers of `depth` layers that share no weights."""
    towers = {name: replace(t, depth=depth, distinct=None) for name, t in spec.tower_fields.items()}
    return replace(spec, **towers)


def _cost(spec: Model, usage: CallShape) -> Cost:
    return cost(spec, batch=usage.batch, length=usage.length, target=usage.target, training=usage.training)


def _measure_step(spec: Model, usage: CallShape, clock: Clock) -> float:
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
        output = model(*inputs)
        output.logsumexp(-1).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with torch.random.fork_rng(devices=[]):
        return _seconds(step, clock)


def _seconds(work: Callable[[], object], clock: Clock, least: int = 5, budget: float = 1.0) -> float:
    """The median time of a call after one warm-up call; slow calls are repeated less often."""
    work()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < least or time.perf_counter() - began < budget / 4:
        start = clock()
        work()
        times.append(clock() - start)
        if time.perf_counter() - began > budget and len(times) >= 3:
            break
    return median(times)
