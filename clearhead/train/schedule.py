"""Schedules: a step in, its learning rate out. Pure functions; steps count from 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SpecError
from ..spec import Spec


class Schedule(Spec):
    """The learning rate by step. `peak` is the setting `lr`; `width` is the model's hidden size."""

    warmup: float  # steps; below 1 a share of all steps

    def warmup_steps(self, steps: int) -> int:
        return round(self.warmup * steps) if self.warmup < 1 else int(self.warmup)

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        raise NotImplementedError

    def check(self) -> None:
        if self.warmup < 0 or (self.warmup > 1 and self.warmup != int(self.warmup)):
            raise SpecError(
                f"{type(self).__name__}.warmup is {self.warmup}; expected a number of steps, or a share of "
                f"them such as 0.1"
            )


@dataclass(frozen=True, kw_only=True)
class Noam(Schedule):
    """Linear warm-up, then inverse square root of the step, scaled by the width (Vaswani 2017).

    This is the rate itself, not a factor on `lr`: its peak is 6.9877e-4 for width 512 and 4000 warm-up steps.
    """

    warmup: float = 4000  # steps; below 1 a share of all steps
    factor: float = 1.0  # on the rate

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        warmup = max(self.warmup_steps(steps), 1)
        return float(self.factor * width**-0.5 * min(step**-0.5, step * warmup**-1.5))

    def check(self) -> None:
        _check_warmup(self)
        if not 0 < self.factor < math.inf:
            raise SpecError(f"Noam.factor is {self.factor}; expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class InverseSqrt(Schedule):
    """Linear warm-up to `lr`, then inverse square root of the step."""

    warmup: float = 4000  # steps; below 1 a share of all steps

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        warmup = max(self.warmup_steps(steps), 1)
        return peak * min(step / warmup, math.sqrt(warmup / step))

    def check(self) -> None:
        _check_warmup(self)


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Linear warm-up to `lr`, then half a cosine down to `minimum` at the last step."""

    warmup: float = 0  # steps; below 1 a share of all steps
    minimum: float = 0.0  # the rate at the last step

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        warmup = self.warmup_steps(steps)
        if step <= warmup:
            return peak * step / warmup
        height = (1 + math.cos(math.pi * _decay_progress(step, warmup, steps))) / 2
        return self.minimum + (peak - self.minimum) * height


@dataclass(frozen=True, kw_only=True)
class LinearDecay(Schedule):
    """Linear warm-up to `lr`, then linear decay to `minimum` at the last step."""

    warmup: float = 0  # steps; below 1 a share of all steps
    minimum: float = 0.0  # the rate at the last step

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        warmup = self.warmup_steps(steps)
        if step <= warmup:
            return peak * step / warmup
        return peak + (self.minimum - peak) * _decay_progress(step, warmup, steps)


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """Linear warm-up to `lr`, then constant."""

    warmup: float = 0  # steps; below 1 a share of all steps

    def rate(self, step: int, *, peak: float, steps: int, width: int) -> float:
        warmup = self.warmup_steps(steps)
        return peak * min(step / warmup, 1.0) if warmup else peak


SCHEDULES: dict[str, type[Schedule]] = {
    "noam": Noam,
    "inverse_sqrt": InverseSqrt,
    "cosine": Cosine,
    "linear": LinearDecay,  # specs are registered by class name, and `Linear` is an attention kernel
    "constant": Constant,
}


def _decay_progress(step: int, warmup: int, steps: int) -> float:
    """The completed fraction of the decay, 0 to 1."""
    if steps == 1:  # at the rate of its end the only step would change nothing
        return 0.0
    return min((step - warmup) / max(steps - warmup, 1), 1.0)


def _check_warmup(schedule: Schedule) -> None:
    Schedule.check(schedule)
    if schedule.warmup == 0:
        name = type(schedule).__name__
        raise SpecError(
            f"{name}.warmup is 0; expected 1 or more steps, or a share such as 0.1: decay starts after them"
        )
