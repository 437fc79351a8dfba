"""Activation statistics: a trace in; mean, spread, largest value and dead share of every activation out."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..nn import Recorder
from .record import record_forward
from .trace_data import TraceData


@dataclass(frozen=True)
class Statistics:
    address: str
    shape: tuple[int, ...]
    mean: float
    std: float
    largest: float
    zero: float  # the share that is exactly zero: units that a ReLU switched off
    odd: int  # how many are not finite


def statistics(trace: TraceData, sites: str = "*.out") -> list[Statistics]:
    """One row for every site whose address matches the glob, in the order of computation."""
    seen, fed = Recorder(), trace.input
    model = trace.needs_model("activation statistics")
    record_forward(model, fed, tap=seen.tap(sites))
    return [_row(address, x[0].float()) for address, x in seen.items()]


def _row(address: str, x: Tensor) -> Statistics:
    good = x[x.isfinite()]
    if not len(good):
        return Statistics(address, tuple(x.shape), 0.0, 0.0, 0.0, 0.0, x.numel())
    spread = float(good.std()) if good.numel() > 1 else 0.0
    zero = float((x == 0).float().mean())
    odd = int(x.numel() - good.numel())
    return Statistics(address, tuple(x.shape), float(good.mean()), spread, float(good.abs().max()), zero, odd)
