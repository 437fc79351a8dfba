"""Estimates: a run that has not started in; its time and memory on this machine out.

A few real steps, spread over the run, and one validation are timed. They train the model a little, so the
caller must not use it afterwards.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from ..bundle import Bundle
from ..tasks import Decode, Task, TextToText
from .determinism import deterministic
from .optimizer_step import OptimizerStep, hidden_size
from .settings import Training
from .setup import ready_to_train
from .state import TrainingState

MIN_TIMED_STEPS, MAX_TIMED_STEPS = 6, 16
SIZED_STEPS = 64  # steps whose batches are built, only to know their size


@dataclass(frozen=True)
class Estimate:
    step: float  # seconds
    steps: int
    validation: float | None  # seconds; None: it exceeded its budget
    validations: int
    memory: int  # peak bytes of this process

    @property
    def seconds(self) -> float:
        """Of the whole run; without validations if their time is unknown."""
        return self.step * self.steps + (self.validation or 0.0) * self.validations


def estimate(
    bundle: Bundle,
    task: Task[Any],
    training: Training,
    *,
    budget: float = 4.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Estimate:
    """`budget` is the seconds given to steps; a validation gets five times as many."""
    with ready_to_train(bundle, training), deterministic(training.threads):
        optimizer_step = OptimizerStep(bundle.model, task, training, hidden_size(bundle.spec))
        step = _seconds_per_step(optimizer_step, training, budget, clock)
        validates = training.validation_interval is not None
        validation = _seconds_per_validation(bundle, task, 5 * budget, clock) if validates else 0.0
    every = training.validation_interval or training.steps
    count = -(-training.steps // every) if validates else 0
    return Estimate(step, training.steps, validation, count, peak_memory())


def _seconds_per_step(
    optimizer_step: OptimizerStep, training: Training, budget: float, clock: Callable[[], float]
) -> float:
    """The mean seconds of a step of the whole run. The first timed step is a warm-up and does not count.

    Batches differ in size, and few can be timed: those give the seconds per token. Many more batches are
    built without being computed and give the tokens per step.
    """
    task, state = optimizer_step.task, TrainingState()
    optimizer_step.model.train()
    optimizer_step.run(1, state, lambda: False)
    seconds, sizes = list[float](), list[int]()
    started = time.perf_counter()
    for number in _spread_steps(training.steps, MAX_TIMED_STEPS):
        start = clock()
        optimizer_step.run(number, state, lambda: False)
        seconds.append(clock() - start)
        sizes.append(_step_tokens(task, training, number))
        if len(seconds) >= MIN_TIMED_STEPS and time.perf_counter() - started > budget:
            break
    tokens_per_step = fmean(
        _step_tokens(task, training, number) for number in _spread_steps(training.steps, SIZED_STEPS)
    )
    per_token = sorted(took / size for took, size in zip(seconds, sizes, strict=True))
    typical = per_token[
        : max(MIN_TIMED_STEPS, round(0.9 * len(per_token)))
    ]  # without outliers: the machine may pause
    return fmean(typical) * tokens_per_step


def _spread_steps(steps: int, count: int) -> list[int]:
    """Step numbers spread over a run; so is every prefix of them (a golden-ratio sequence)."""
    golden = 0.6180339887498949
    return [1 + int(steps * (i * golden % 1)) for i in range(1, count + 1)]


def _step_tokens(task: Task[Any], training: Training, step: int) -> int:
    """The padded tokens of a step, counted as the numbers in the largest tensor of each of its batches."""
    batches = (task.batch(step, part) for part in range(training.micro))
    sizes = ([x.numel() for x in vars(batch).values() if isinstance(x, torch.Tensor)] for batch in batches)
    return sum(max(numbers, default=1) for numbers in sizes)


class _OverBudgetError(Exception):
    """A validation exceeded its budget."""


def _seconds_per_validation(
    bundle: Bundle, task: Task[Any], budget: float, clock: Callable[[], float]
) -> float | None:
    deadline = time.perf_counter() + budget

    def check_deadline(*_: Any) -> None:
        if time.perf_counter() > deadline:
            raise _OverBudgetError

    model = bundle.model.eval()
    if isinstance(task, TextToText):
        limited = copy(task)
        limited.decode = _limited_to_reference_length(task.decode)
        task = limited
    hooks = [module.register_forward_pre_hook(check_deadline) for module in model.children()]
    start = clock()
    try:
        with torch.no_grad():
            task.score(model, "valid")
    except _OverBudgetError:
        return None
    finally:
        for hook in hooks:
            hook.remove()
    return clock() - start


def _limited_to_reference_length(decode: Decode | None) -> Decode | None:
    """An untrained model never emits the end token; a trained one stops near the reference's length."""
    if decode is None:
        return None
    return lambda model, source, mask, limit: decode(model, source, mask, max(limit // 2 - 4, 1))


def peak_memory() -> int:
    """Peak resident memory of this process, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
