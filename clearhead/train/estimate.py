"""Estimates: a run that has not begun in, how long and how much memory it will take here out.

A few real steps are taken, spread over the run, and one validation is timed. The model is changed by them:
whoever estimates throws it away.
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
from ..nn.tower import Tower
from ..tasks import Task
from ..tasks.translate import Decode, TextToText
from ..tune import layout
from .exact import repeatable
from .settings import Training
from .state import State
from .update import Update

LEAST, MOST = 6, 16  # steps that are timed
MADE = 64  # steps whose batches are made, to know how large they are


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
    layout.for_training(bundle.model)
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
    """The mean seconds of a step of the whole run. The first one that is taken warms up and does not count.

    Batches differ in size, and few can be timed: they give the seconds of a token, and many batches that are
    only made give the tokens of a step.
    """
    task, state = update.task, State()
    update.model.train()
    update.take(1, state, lambda: False)
    seconds, sizes = list[float](), list[int]()
    began = time.perf_counter()
    for number in _spread(training.steps, MOST):
        start = clock()
        update.take(number, state, lambda: False)
        seconds.append(clock() - start)
        sizes.append(_tokens(task, training, number))
        if len(seconds) >= LEAST and time.perf_counter() - began > budget:
            break
    usual = fmean(_tokens(task, training, number) for number in _spread(training.steps, MADE))
    each = sorted(took / size for took, size in zip(seconds, sizes, strict=True))
    steady = each[: max(LEAST, round(0.9 * len(each)))]  # a pause of the machine is no step
    return fmean(steady) * usual


def _spread(steps: int, count: int) -> list[int]:
    """Numbers of steps all over a run, in an order of which every beginning is spread, too."""
    golden = 0.6180339887498949
    return [1 + int(steps * (i * golden % 1)) for i in range(1, count + 1)]


def _tokens(task: Task[Any], training: Training, step: int) -> int:
    """The size of a step: the largest tensor of each of its batches."""
    batches = (task.batch(step, part) for part in range(training.micro))
    sizes = ([x.numel() for x in vars(batch).values() if isinstance(x, torch.Tensor)] for batch in batches)
    return sum(max(found, default=1) for found in sizes)


class _LateError(Exception):
    """A validation has had its time."""


def _validation(bundle: Bundle, task: Task[Any], budget: float, clock: Callable[[], float]) -> float | None:
    deadline = time.perf_counter() + budget

    def look(*_: Any) -> None:
        if time.perf_counter() > deadline:
            raise _LateError

    model = bundle.model.eval()
    if isinstance(task, TextToText):
        brief = copy(task)
        brief.decode = _as_long_as_the_truth(task.decode)
        task = brief
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


def _as_long_as_the_truth(decode: Decode | None) -> Decode | None:
    """An untrained model does not know when to stop; a trained one speaks about as long as it should."""
    if decode is None:
        return None
    return lambda model, source, mask, limit: decode(model, source, mask, max(limit // 2 - 4, 1))


def peak_memory() -> int:
    """The most bytes this process has had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
