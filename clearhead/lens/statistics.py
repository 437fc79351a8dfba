"""Activation statistics: a trace in; mean, standard deviation, maximum and zeros of every activation out."""

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
    zero: float  # the share that is exactly zero, such as inactive ReLU units
    non_finite: int  # number of NaN and infinite values


def statistics(trace: TraceData, sites: str = "*.out") -> list[Statistics]:
    """One row for every site whose address matches the glob, in the order of computation."""
    model, recorder = trace.needs_model("activation statistics"), Recorder()
    record_forward(model, trace.input, tap=recorder.tap(sites))
    return [_row(address, x[0].float()) for address, x in recorder.items()]


def _row(address: str, x: Tensor) -> Statistics:
    finite = x[x.isfinite()]
    if not len(finite):
        return Statistics(address, tuple(x.shape), 0.0, 0.0, 0.0, 0.0, x.numel())
    std = float(finite.std()) if finite.numel() > 1 else 0.0
    return Statistics(
        address,
        tuple(x.shape),
        mean=float(finite.mean()),
        std=std,
        largest=float(finite.abs().max()),
        zero=float((x == 0).float().mean()),
        non_finite=x.numel() - finite.numel(),
    )
