"""Schedules: a step in, its learning rate out. Pure functions; steps count from 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SpecError
from ..spec import Spec


class Schedule(Spec):
    """The learning rate by step. `peak` is the setting `lr`; `width` is the model's hidden size."""

    warmup: int

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        raise NotImplementedError

    def check(self) -> None:
        if self.warmup < 0:
            raise SpecError(f"{type(self).__name__}.warmup is {self.warmup}; expected 0 or more steps")


@dataclass(frozen=True, kw_only=True)
class Noam(Schedule):
    """Linear warm-up, then inverse square root of the step, scaled by the width (Vaswani 2017).

    This is the rate itself, not a factor on `lr`: its peak is 6.9877e-4 for width 512 and 4000 warm-up steps.
    """

    warmup: int = 4000
    factor: float = 1.0

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        return float(self.factor * width**-0.5 * min(step**-0.5, step * self.warmup**-1.5))

    def check(self) -> None:
        _check_warmup(self)
        if not 0 < self.factor < math.inf:
            raise SpecError(f"Noam.factor is {self.factor}; expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class InverseSqrt(Schedule):
    """Linear warm-up to `lr`, then inverse square root of the step."""

    warmup: int = 4000

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        return peak * min(step / self.warmup, math.sqrt(self.warmup / step))

    def check(self) -> None:
        _check_warmup(self)


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Linear warm-up to `lr`, then half a cosine down to `minimum` at the last step."""

    warmup: int = 0
    minimum: float = 0.0

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        if step <= self.warmup:
            return peak * step / self.warmup
        cosine = (1 + math.cos(math.pi * _decay_progress(step, self.warmup, steps))) / 2
        return self.minimum + (peak - self.minimum) * cosine


@dataclass(frozen=True, kw_only=True)
class LinearDecay(Schedule):
    """Linear warm-up to `lr`, then linear decay to `minimum` at the last step."""

    warmup: int = 0
    minimum: float = 0.0

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        if step <= self.warmup:
            return peak * step / self.warmup
        return peak + (self.minimum - peak) * _decay_progress(step, self.warmup, steps)


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """Linear warm-up to `lr`, then constant."""

    warmup: int = 0

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        return peak * min(step / self.warmup, 1.0) if self.warmup else peak


SCHEDULES: dict[str, type[Schedule]] = {
    "noam": Noam,
    "inverse_sqrt": InverseSqrt,
    "cosine": Cosine,
    "linear": LinearDecay,  # specs are registered by class name, and `Linear` is an attention kernel
    "constant": Constant,
}


def _decay_progress(step: int, warmup: int, steps: int) -> float:
    """The completed fraction of the decay, 0 to 1."""
    return min((step - warmup) / max(steps - warmup, 1), 1.0)


def _check_warmup(schedule: Schedule) -> None:
    if schedule.warmup < 1:
        name = type(schedule).__name__
        raise SpecError(
            f"{name}.warmup is {schedule.warmup}; expected 1 or more steps: the decay starts after them"
        )
