"""The training loop: from the initial weights, or the newest intact checkpoint, to the last step."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ..bundle import Bundle
from ..errors import TrainError, TrainingStopped, nearest, one_line
from ..store import ADAPTER_CONFIG, CONFIG_FILE, write_file_atomically
from ..tasks import Task
from .atomic_write import disk_errors
from .average import Ema
from .checklist import checklist
from .checkpointing import Checkpointer
from .determinism import seeded
from .log import MetricsLog, Record
from .memory import check_memory, out_of_memory_errors
from .optimizer_step import NonFiniteError, OptimizerStep, StepMetrics, hidden_size
from .progress import Progress
from .settings import Training
from .signals import StopSignals

DONE_REASONS = ("steps", "patience")  # after any other reason the run can be resumed
FINISHED = "already finished"  # nothing was left to do


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended. A stopped run resumes when it is run again."""

    status: Literal["done", "stopped"]
    reason: str  # done: steps, patience, already finished; stopped: time budget, SIGINT, SIGTERM
    folder: Path
    step: int
    tokens: int
    best: float | None
    best_step: int | None
    trainable: int = 0  # numbers that were trained
    parameters: int = 0  # numbers of the whole model


class TrainingLoop:
    """Step, record, save, validate, until the last step or a reason to stop."""

    def __init__(
        self,
        bundle: Bundle,
        task: Task[Any],
        training: Training,
        folder: Path,
        progress: Progress,
        signals: StopSignals,
    ) -> None:
        self.bundle, self.model, self.task, self.training = bundle, bundle.model, task, training
        self.folder, self.progress, self.signals = folder, progress, signals
        self.width = hidden_size(bundle.spec)
        self.optimizer_step = OptimizerStep(self.model, task, training, self.width)
        self.ema = None if training.ema is None else Ema(self.model, training.ema)
        self.start_time = time.monotonic()
        self.norms: deque[float] = deque(maxlen=100)  # recent gradient norms, for the checklist
        self.checkpointer = Checkpointer(bundle, self.optimizer_step, self.ema, folder, progress.warn)
        check_memory(bundle, task, training)  # before moments are read: they are part of the estimate
        self.state = self.checkpointer.resume()
        self.listener: Callable[[Record], None] | None = None

    def begin(self, files: Mapping[str, str]) -> None:
        """Write the first files. All checks have passed by now; settings are written before the log."""
        for name, text in files.items():
            with disk_errors(self.folder / name):
                write_file_atomically(self.folder / name, text.encode("utf-8"))
        self.log = MetricsLog(self.folder, self.state.step)

    def run(self, listener: Callable[[Record], None] | None) -> TrainingResult:
        self.listener = listener
        first = self.state.step
        published = any((self.folder / name).exists() for name in (CONFIG_FILE, ADAPTER_CONFIG))
        self.progress.start(self.state.step, self.training.steps)
        try:
            reason = self._loop()
        finally:
            self.log.close()
        if reason in DONE_REASONS or reason == "time budget":
            self.checkpointer.publish(self.state)
        state = self.state
        status: Literal["done", "stopped"] = "done" if reason in DONE_REASONS else "stopped"
        if status == "done" and published and first == state.step:
            reason = FINISHED
        return TrainingResult(
            status,
            reason,
            self.folder,
            state.step,
            state.tokens,
            state.best,
            state.best_step,
            trainable=sum(p.numel() for p in self.optimizer_step.parameters.values()),
            parameters=sum(p.numel() for p in self.model.parameters()),
        )

    def _loop(self) -> str:
        state, training = self.state, self.training
        self._validate_if_due(self.log.validation(state.step))
        if self.checkpointer.extended:
            state.waited = 0  # the patience of the longer run begins here
        while not (reason := self._end_reason()):
            start = time.monotonic()
            self.model.train()
            try:
                with out_of_memory_errors(state.step + 1, self.checkpointer.saved):
                    metrics = self.optimizer_step.run(state.step + 1, state, self._must_stop)
            except NonFiniteError as error:
                raise self._stop_at_non_finite(error) from None
            if metrics is None:
                self._save()
                return self._stop_reason()
            self._finish_step(metrics, time.monotonic() - start)
            requested = self.signals.take_save_request()
            due = self._is_due(training.save_every) or self._is_due(training.validation_interval)
            if requested or due or self._end_reason():
                self._save()
            self._validate_if_due()
        return reason

    def _validate_if_due(self, finished: Record | None = None) -> None:
        """Validate if it is time. The checkpoint is saved first, so that a failing validation loses nothing.

        Therefore a checkpoint does not include the validation of its own step. A resumed run takes those
        scores from the log (`finished`) if the validation was completed, and validates otherwise.
        """
        due = self._is_due(self.training.validation_interval)
        # What was the last step once, and validated as such, counts even if the run was given more steps.
        if self.state.scored == self.state.step or not (due or finished):
            return
        if finished is None:
            with out_of_memory_errors(self.state.step, self.checkpointer.saved):
                self._validate()
        else:
            self._update_best(finished["scores"])
        self.checkpointer.prune(self.state)

    def _end_reason(self) -> str:
        """Why the run is finished, or "". Depends on the state alone, so a finished run stays finished."""
        if self.state.step >= self.training.steps:
            return "steps"
        if self.training.patience is not None and self.state.waited >= self.training.patience:
            return "patience"
        return ""

    def _must_stop(self) -> bool:
        return bool(self._stop_reason())

    def _stop_reason(self) -> str:
        """Why the run must stop early, or ""; asked between micro-batches."""
        budget = self.training.time_budget
        if budget is not None and time.monotonic() - self.start_time >= budget:
            return "time budget"
        return self.signals.received or ""

    def _is_due(self, every: int | None) -> bool:
        """At every multiple of `every` steps, and at the last step."""
        if self.state.step == 0:
            return False
        return every is not None and (self.state.step % every == 0 or self.state.step == self.training.steps)

    def _finish_step(self, metrics: StepMetrics, seconds: float) -> None:
        self.state.step += 1
        self.state.tokens += metrics.targets
        self.norms.append(metrics.grad_norm)
        if self.ema is not None:
            self.ema.update(self.model)
        known = {name: value for name, value in vars(metrics).items() if value is not None}
        values = {name: value for name, value in known.items() if name != "inputs"}
        record: Record = {"step": self.state.step, **values, "tokens": self.state.tokens}
        seconds = max(seconds, 1e-9)
        record["speed"] = {
            "tokens_per_second": metrics.targets / seconds,
            "input_tokens_per_second": metrics.inputs / seconds,
            "seconds": seconds,
        }
        self._record(record)
        self.progress.step(record)

    def _record(self, record: Record) -> None:
        self.log.write(record)
        if self.listener is not None:
            self.listener(record)

    @torch.no_grad()
    def _validate(self) -> None:
        """Score the model, and record and show the scores."""
        state = self.state
        self.model.eval()
        key = (self.optimizer_step.device, self.training.seed, "valid", state.step)
        averaged = nullcontext() if self.ema is None else self.ema.applied(self.model)
        with seeded(*key), self.optimizer_step.autocast(), averaged:
            scores = dict(self.task.score(self.model, "valid"))
            samples = self.task.samples(self.model)
        improved = self._update_best(scores)
        self._record(
            {"step": state.step, "split": "valid", "scores": scores, "best": improved, "samples": samples}
        )
        shown = " ".join(f"{name} {value:.4g}" for name, value in scores.items())
        for line in [f"step {state.step} valid {shown}{' (best)' if improved else ''}", *samples]:
            self.progress.write(one_line(line))

    def _update_best(self, scores: Mapping[str, Any]) -> bool:
        """Update the best score and the patience counter; returns whether this is the best so far."""
        state, (metric, larger) = self.state, self.task.better
        if metric not in scores:
            raise TrainError(
                f"the task is judged by {metric!r}, and has no such score; {nearest(metric, scores)}"
            )
        score = math.nan if scores[metric] is None else float(scores[metric])  # the log has null for NaN
        gain = 0.0 if state.best is None else (score - state.best) * (1 if larger else -1)
        improved = math.isfinite(score) and (state.best is None or gain > 0)
        if improved:
            state.best, state.best_step, state.waited = score, state.step, 0
        else:
            state.waited += 1
        state.scored = state.step
        return improved

    def _save(self) -> None:
        self.log.sync()  # so that no checkpoint is ahead of the log
        self.checkpointer.save(self.state)

    def _stop_at_non_finite(self, error: NonFiniteError) -> TrainingStopped:
        step = self.state.step + 1
        self._record({"step": step, "split": "failed", "tensor": error.tensor, "value": str(error.value)})
        self._save()
        checks = checklist(self.bundle, self.training, self.width, step, self.norms)
        where = f"the weights are those of step {step - 1}, saved in {self.folder}"
        advice = "; ".join(f"{name}: {value}" for name, value in checks.items())
        message = one_line(f"step {step}: {error.tensor} is {error.value}; {where}. Look at {advice}")
        return TrainingStopped(message, step=step, tensor=error.tensor, checks=checks)
