"""Estimates: a run that has not begun in, how long and how much memory it will take here out.

A few real steps are taken, spread over the run, and one validation is timed. The model is changed by them:
whoever estimates throws it away.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from ..bundle import Bundle
from ..nn.tower import Tower
from ..tasks import Task
from .exact import repeatable, settle
from .settings import Training
from .state import State
from .update import Update

LEAST, MOST = 3, 16  # steps that are timed


@dataclass(frozen=True)
class Estimate:
    step: float  # seconds
    steps: int
    validation: float | None  # seconds; None: longer than it was given
    validations: int
    memory: int  # the most bytes this process has had so far

    @property
    def seconds(self) -> float:
        """Of the whole run, as far as it is known."""
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
    settle(bundle.model)
    width = [node.width for node in bundle.spec.nodes() if isinstance(node, Tower)][-1]
    with repeatable(training.threads):
        update = Update(bundle.model, task, training, width)
        step = _step(update, training, budget, clock)
        due = training.valid_every is not None
        validation = _validation(bundle, task, 5 * budget, clock) if due else 0.0
    every = training.valid_every or training.steps
    count = -(-training.steps // every) if due else 0
    return Estimate(step, training.steps, validation, count, peak_memory())


def _step(update: Update, training: Training, budget: float, clock: Callable[[], float]) -> float:
    """The mean of some steps from the whole run; the first one warms up and does not count."""
    last = training.steps - 1
    numbers = [1 + i * last // max(MOST - 1, 1) for i in range(MOST)]
    state, seconds = State(), list[float]()
    update.model.train()
    update.take(1, state, lambda: False)
    began = time.perf_counter()
    for number in numbers:
        start = clock()
        update.take(number, state, lambda: False)
        seconds.append(clock() - start)
        if len(seconds) >= LEAST and time.perf_counter() - began > budget:
            break
    usual = sorted(seconds)[: max(LEAST, round(0.9 * len(seconds)))]  # a pause of the machine is no step
    return fmean(usual)


class _LateError(Exception):
    """A validation has had its time."""


def _validation(bundle: Bundle, task: Task[Any], budget: float, clock: Callable[[], float]) -> float | None:
    deadline = time.perf_counter() + budget

    def look(*_: Any) -> None:
        if time.perf_counter() > deadline:
            raise _LateError

    model = bundle.model.eval()
    hooks = [module.register_forward_pre_hook(look) for module in model.children()]
    start = clock()
    try:
        with torch.no_grad():
            task.score(model, "valid")
    except _LateError:
        return None
    finally:
        for hook in hooks:
            hook.remove()
    return clock() - start


def peak_memory() -> int:
    """The most bytes this process has had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
