"""Attention by length: token mixers in; time, memory and FLOPs of one layer at each length out.

Every variant is the same layer with another mixer between the projections. They take turns, length by length;
a variant whose next length would exceed the time limit is skipped and reported. Shape suffixes: B batch, T
tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log, prod

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ..bundle import parse
from ..errors import ClearheadError, InputError, SpecError
from ..nn import (
    Attention,
    AttentionKernel,
    BoundPositions,
    CallShape,
    Causal,
    Context,
    Everyone,
    Normal,
    PositionCost,
    Recurrent,
    TokenMixer,
    TokenMixerModule,
    View,
    generator,
    initialise,
    kernels,
)
from .timing import ProgressCallback, fair_clock, measure_in_turns, peak_tensor_bytes

SOFTMAX = "Softmax"
ATTENTION_VARIANTS = (
    SOFTMAX, "Tiled", "Window(128)", "Longformer(64)", "BigBird", "LSH", "Linear", "Performer(256)",
    "Linformer(256)", "Nystrom(64)", "Summary(128)", "Recurrent", "Recurrent('gru')", "Convolution",
)  # fmt: skip
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class LayerSize:
    """The size of the layer, the same for all variants."""

    width: int = 256
    heads: int = 4
    batch: int = 1
    causal: bool = False


@dataclass(frozen=True)
class AttentionPoint:
    variant: str
    length: int
    forward: float  # seconds
    both: float  # forward and backward pass, seconds
    forward_memory: int  # bytes
    both_memory: int
    predicted: int | None  # FLOPs of the forward pass by formula; None: there is no formula
    counted: int | None  # FLOPs that torch counted; None: torch cannot count this call


@dataclass(frozen=True)
class AttentionBenchmark:
    points: list[AttentionPoint]
    refused: dict[str, str]  # variant -> error of a variant that cannot run
    skipped: dict[str, int]  # variant -> length from which it would exceed the time limit

    def of(self, variant: str) -> list[AttentionPoint]:
        return [point for point in self.points if point.variant == variant]


def measure_attention(
    variants: Sequence[str],
    lengths: Sequence[int],
    layer: LayerSize,
    *,
    rounds: int,
    limit: float,
    progress: ProgressCallback,
) -> AttentionBenchmark:
    if not lengths or min(lengths) < 1:
        raise InputError(f"lengths are {list(lengths)}; expected numbers of tokens, 1 or more")
    mixers = {name: parse_variant(name, layer, max(lengths)) for name in variants}
    points: list[AttentionPoint] = []
    refused: dict[str, str] = {}
    skipped: dict[str, int] = {}
    for length in sorted(lengths):
        calls: dict[str, _Call] = {}
        for name, spec in mixers.items():
            if name in refused or name in skipped:
                continue
            if _too_long(points, name, length, limit):
                skipped[name] = length
                continue
            # A first call shows whether the variant supports this layer and length.
            try:
                progress(f"{length:,} tokens: {name}")
                calls[name] = _Call(spec, layer, length)
                calls[name].forward()
            except ClearheadError as error:
                refused[name] = str(error)
                calls.pop(name, None)
        points += _points(calls, mixers, layer, length, rounds, progress)
    return AttentionBenchmark(points, refused, skipped)


def parse_variant(word: str, layer: LayerSize, longest: int) -> TokenMixer:
    """The token mixer of a variant: attention with a kernel, or another mixer."""
    spec = parse(word)
    if isinstance(spec, kernels.Linformer):
        spec = replace(spec, length=max(longest, spec.length))
    if isinstance(spec, AttentionKernel):
        return Attention(heads=layer.heads, kernel=spec)
    if not isinstance(spec, TokenMixer):
        raise SpecError(f"{word!r} does not mix tokens; expected a kernel such as Linear, or Recurrent")
    return spec


def crossover(
    result: AttentionBenchmark, variant: str, of: Callable[[AttentionPoint], float]
) -> float | None:
    """The length from which a variant needs less than softmax; 0: always, None: at no measured length."""
    base = {point.length: of(point) for point in result.of(SOFTMAX)}
    ratios = [(p.length, log(of(p) / base[p.length])) for p in result.of(variant) if p.length in base]
    if not ratios or ratios[-1][1] >= 0:
        return None
    slower = [i for i, (_, ratio) in enumerate(ratios) if ratio >= 0]
    if not slower:
        return 0.0
    # Interpolate between the last length at which it needs more and the next one, on logarithmic scales.
    (n1, r1), (n2, r2) = ratios[slower[-1]], ratios[slower[-1] + 1]
    return exp(log(n1) + (log(n2) - log(n1)) * r1 / (r1 - r2))


@dataclass(frozen=True)
class Growth:
    """The factor by which a figure grows when the length doubles."""

    worst: float
    mean: float


def growth_per_doubling(
    result: AttentionBenchmark, variant: str, of: Callable[[AttentionPoint], float], start: int = 2048
) -> Growth | None:
    """Growth over the doublings from `start` tokens on; None with fewer than two lengths."""
    points = [p for p in result.of(variant) if p.length >= start]
    steps = [of(b) / of(a) for a, b in pairwise(points) if b.length == 2 * a.length]
    return Growth(max(steps), float(prod(steps) ** (1 / len(steps)))) if steps else None


class _Call:
    """One layer and one random input, ready to run."""

    def __init__(self, spec: TokenMixer, layer: LayerSize, length: int) -> None:
        with torch.device("meta"):
            module: TokenMixerModule = spec.build(layer.width)
        module = module.to_empty(device="cpu")
        initialise(module, Normal(), seed=0)
        if layer.causal:
            module.require({"causal"})
        self.module = module.eval()
        shape = (layer.batch, length, layer.width)
        self.x_BTD = torch.randn(shape, generator=generator(0, "bench", length))
        self.mask = Causal() if layer.causal else Everyone()

    def _run(self, x_BTD: Tensor) -> Tensor:
        positions = torch.arange(x_BTD.shape[1])[None]
        # A new view for each call: a view caches its mask, and building it is part of the work.
        view = View(self.mask, len(x_BTD), positions, positions)
        output: Tensor = self.module(x_BTD, Context(view, BoundPositions()))
        return output

    @torch.no_grad()
    def forward(self) -> int:
        self._run(self.x_BTD)
        return 1

    def both(self) -> int:
        output = self._run(self.x_BTD.requires_grad_())
        torch.autograd.backward(output, torch.ones_like(output))
        self.module.zero_grad(set_to_none=True)
        self.x_BTD.grad = None
        return 1


def _points(
    calls: dict[str, _Call],
    mixers: dict[str, TokenMixer],
    layer: LayerSize,
    length: int,
    rounds: int,
    progress: ProgressCallback,
) -> list[AttentionPoint]:
    if not calls:
        return []
    clock = fair_clock()
    forward = measure_in_turns({name: call.forward for name, call in calls.items()}, rounds, progress, clock)
    both = measure_in_turns({name: call.both for name, call in calls.items()}, rounds, progress, clock)
    return [
        AttentionPoint(
            name,
            length,
            1 / forward[name],
            1 / both[name],
            peak_tensor_bytes(call.forward),
            peak_tensor_bytes(call.both),
            _predicted_flops(mixers[name], layer, length),
            _counted_flops(call),
        )
        for name, call in calls.items()
    ]


def _too_long(points: Sequence[AttentionPoint], name: str, length: int, limit: float) -> bool:
    """Whether the next length would exceed the limit, extrapolated from the last two."""
    measured = [point for point in points if point.variant == name]
    if not measured:
        return False
    last = measured[-1]
    step = length / last.length
    rate = last.both / measured[-2].both if len(measured) > 1 else step**2
    return last.both * max(step, rate) > limit


def _predicted_flops(spec: TokenMixer, layer: LayerSize, length: int) -> int | None:
    shape = CallShape(batch=layer.batch, length=length).hidden(layer.width)
    if isinstance(spec, Recurrent):  # gates of the input and the state, then the output projection
        hidden, gates = spec.hidden or layer.width, 4 if spec.cell == "lstm" else 3
        cell = gates * hidden * (layer.width + hidden) + hidden * layer.width
        return 2 * shape.vectors * cell * (2 if spec.both_ways else 1)
    try:
        return spec.cost(shape, causal=layer.causal, positions=PositionCost()).flops
    except ClearheadError:
        return None


def _counted_flops(call: _Call) -> int | None:
    if any(isinstance(part, torch.nn.RNNBase) for part in call.module.modules()):
        return None  # torch does not count inside the recurrent calls of the CPU
    with FlopCounterMode(display=False, custom_mapping=FUSED) as counter:
        call.forward()
    return int(counter.get_total_flops())


def _fused(q: list[int], k: list[int], v: list[int], *_: object, **__: object) -> int:
    """FLOPs of the CPU's fused attention, as torch counts them for GPUs."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


FUSED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _fused}
