"""One run: from the first weights, or from the newest whole checkpoint, to the last step. The one loop."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ..bundle import Bundle
from ..errors import TrainError, TrainingStopped, nearest, one_line
from ..nn.tower import Tower
from ..store.place import write_file
from ..tasks import Task
from ..tune import layout
from .average import Ema
from .checklist import checklist
from .commit import writing
from .exact import seeded
from .keeper import Keeper
from .log import Log, Record
from .progress import Progress
from .settings import Training
from .signals import Interruption
from .update import Measured, NotFinite, Update

DONE = ("steps", "patience")


@dataclass(frozen=True)
class Result:
    """How a run ended. A stopped one goes on when it is run again."""

    status: Literal["done", "stopped"]
    reason: str  # done: steps, patience; stopped: time budget, SIGINT, SIGTERM
    folder: Path
    step: int
    tokens: int
    best: float | None
    best_step: int | None


class Run:
    def __init__(
        self,
        bundle: Bundle,
        task: Task[Any],
        training: Training,
        folder: Path,
        progress: Progress,
        interruption: Interruption,
    ) -> None:
        self.bundle, self.model, self.task, self.training = bundle, bundle.model, task, training
        self.folder, self.progress, self.interruption = folder, progress, interruption
        layout.for_training(self.model)
        self.width = [node.width for node in bundle.spec.nodes() if isinstance(node, Tower)][-1]
        self.update = Update(self.model, task, training, self.width)
        self.ema = None if training.ema is None else Ema(self.model, training.ema)
        self.began = time.monotonic()
        self.norms: deque[float] = deque(maxlen=100)
        self.keeper = Keeper(bundle, self.update, self.ema, folder, progress.warn)
        self.state = self.keeper.resume()
        self.listener: Callable[[Record], None] | None = None

    def begin(self, files: Mapping[str, str]) -> None:
        """The first writes: what was refused has been refused by now. The settings come before the log."""
        for name, text in files.items():
            with writing(self.folder / name):
                write_file(self.folder / name, text.encode("utf-8"))
        self.log = Log(self.folder, self.state.step)

    def to_the_end(self, listener: Callable[[Record], None] | None) -> Result:
        self.listener = listener
        self.progress.start(self.state.step, self.training.steps)
        try:
            reason = self._loop()
        finally:
            self.log.close()
        if reason in DONE or reason == "time budget":
            self.keeper.publish(self.state)
        state = self.state
        status: Literal["done", "stopped"] = "done" if reason in DONE else "stopped"
        return Result(status, reason, self.folder, state.step, state.tokens, state.best, state.best_step)

    def _loop(self) -> str:
        state, training = self.state, self.training
        self._judge(self.log.validation(state.step))
        while not (reason := self._over()):
            start = time.monotonic()
            self.model.train()
            try:
                measured = self.update.take(state.step + 1, state, lambda: bool(self._halted()))
            except NotFinite as bad:
                raise self._stopped(bad) from None
            if measured is None:
                self._save()
                return self._halted()
            self._count(measured, time.monotonic() - start)
            asked = self.interruption.wants_checkpoint()
            due = self._is_due(training.save_every) or self._is_due(training.valid_every)
            if asked or due or self._over():
                self._save()
            self._judge()
        return reason

    def _judge(self, finished: Record | None = None) -> None:
        """Validate if it is time. Saved first: whatever a validation does, the weights are on the disk.

        So a checkpoint knows nothing of the validation of its own step. A resumed run takes the scores from
        the log if that validation was finished, and validates otherwise.
        """
        if not self._is_due(self.training.valid_every) or self.state.scored == self.state.step:
            return
        if finished is None:
            self._validate()
        else:
            self._rank(finished["scores"])
        self.keeper.prune(self.state)

    def _over(self) -> str:
        """Why a run is at its end, if it is; follows from the state, so a finished run stays finished."""
        if self.state.step >= self.training.steps:
            return "steps"
        if self.training.patience is not None and self.state.waited >= self.training.patience:
            return "patience"
        return ""

    def _halted(self) -> str:
        """Why it must stop before its end, if it must; asked between micro-batches."""
        budget = self.training.time_budget
        if budget is not None and time.monotonic() - self.began >= budget:
            return "time budget"
        return self.interruption.name or ""

    def _is_due(self, every: int | None) -> bool:
        """Every so many steps, and at the last."""
        if self.state.step == 0:
            return False
        return every is not None and (self.state.step % every == 0 or self.state.step == self.training.steps)

    def _count(self, measured: Measured, seconds: float) -> None:
        self.state.step += 1
        self.state.tokens += measured.targets
        self.norms.append(measured.grad_norm)
        if self.ema is not None:
            self.ema.update(self.model)
        record = {"step": self.state.step, **vars(measured), "tokens": self.state.tokens}
        record["speed"] = {"tokens_per_second": measured.targets / max(seconds, 1e-9), "seconds": seconds}
        self._record(record)
        self.progress.step(record)

    def _record(self, record: Record) -> None:
        self.log.write(record)
        if self.listener is not None:
            self.listener(record)

    @torch.no_grad()
    def _validate(self) -> None:
        """Score the model, and say how it did."""
        state = self.state
        self.model.eval()
        key = (self.update.device, self.training.seed, "valid", state.step)
        with seeded(*key), self.update.autocast(), self._shown():
            scores = dict(self.task.score(self.model, "valid"))
            samples = self.task.samples(self.model)
        improved = self._rank(scores)
        self._record(
            {"step": state.step, "split": "valid", "scores": scores, "best": improved, "samples": samples}
        )
        shown = " ".join(f"{name} {value:.4g}" for name, value in scores.items())
        for line in [f"step {state.step} valid {shown}{' (best)' if improved else ''}", *samples]:
            self.progress.say(one_line(line))

    def _rank(self, scores: Mapping[str, Any]) -> bool:
        """Count a validation; whether it is the best so far."""
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

    def _shown(self) -> AbstractContextManager[None]:
        return nullcontext() if self.ema is None else self.ema.shown(self.model)

    def _save(self) -> None:
        self.log.sync()  # so that no checkpoint is ahead of the log
        self.keeper.save(self.state)

    def _stopped(self, bad: NotFinite) -> TrainingStopped:
        step = self.state.step + 1
        self._record({"step": step, "split": "failed", "tensor": bad.tensor, "value": str(bad.value)})
        self._save()
        checks = checklist(self.bundle, self.training, self.width, step, self.norms)
        where = f"the weights are those of step {step - 1}, saved in {self.folder}"
        said = "; ".join(f"{name}: {value}" for name, value in checks.items())
        message = one_line(f"step {step}: {bad.tensor} is {bad.value}; {where}. Look at {said}")
        return TrainingStopped(message, step=step, tensor=bad.tensor, checks=checks)
