"""The keeper: a run in its folder. Where it begins, what is saved and what goes, and the model at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..bundle import Bundle
from ..errors import TrainError, one_line, shortened
from . import checkpoint, commit
from .average import Ema, mean
from .exact import commit_of_code, environment
from .settings import FREE
from .state import State, means, moments, put, remember
from .update import LARGEST, Update

SAME = ("training", "model", "task")  # the facts that must not differ when a run goes on


class Keeper:
    def __init__(
        self, bundle: Bundle, update: Update, ema: Ema | None, folder: Path, warn: commit.Warn
    ) -> None:
        self.bundle, self.model, self.update, self.ema = bundle, bundle.model, update, ema
        self.training, self.folder, self.warn = update.training, folder, warn
        self.facts = self._facts()
        self.saved: int | None = None  # the step of the newest checkpoint

    def resume(self) -> State:
        """The newest whole checkpoint, put into the model; or the beginning."""
        path = commit.newest(self.folder, self.warn)
        if path is None:
            if (self.folder / "config.json").exists() and not commit.checkpoints(self.folder):
                message = f"{self.folder} holds a model that no run here has made; choose another folder"
                raise TrainError(one_line(message))
            return State(scale=LARGEST if self.update.scaled else 1.0)
        state, facts = checkpoint.read_numbers(path)
        checkpoint.refuse_other(path, {key: self.facts[key] for key in SAME}, facts)
        put(self.model, checkpoint.read_weights(self.bundle, path))
        remember(self.model, self.update.optimizer, checkpoint.read_tensors(path, "optimizer."))
        if self.ema is not None:
            self.ema.restore(checkpoint.read_tensors(path, "ema."))
        there = facts.get("environment")
        self._compare(there if isinstance(there, dict) else {})
        self.saved = state.step
        return state

    def save(self, state: State) -> None:
        """A checkpoint, unless this step has one."""
        if self.saved == state.step:
            return
        tensors = moments(self.model, self.update.optimizer) | means(self.ema)
        checkpoint.write_checkpoint(self.folder, self.bundle, state, tensors, self.facts)
        self.saved = state.step
        self.prune(state)

    def prune(self, state: State) -> None:
        """Remove the checkpoints that are no longer needed."""
        # Later ones are broken, and were left behind when the run went back to an earlier one.
        there = [step for step in commit.checkpoints(self.folder) if step <= state.step]
        best = [] if state.best_step is None else [state.best_step]
        commit.prune(self.folder, {*there[-self.training.keep :], *self._averaged(there), *best})

    def publish(self, state: State) -> None:
        """The folder itself becomes the model: the mean of checkpoints, or the best, or the last."""
        best, there = state.best_step, commit.checkpoints(self.folder)
        averaged = [
            there[step] for step in self._averaged(list(there)) if commit.whole(there[step], self.warn)
        ]
        if averaged:
            put(self.model, mean(checkpoint.read_weights(self.bundle, path) for path in averaged))
        elif (
            best is not None and best != state.step and best in there and commit.whole(there[best], self.warn)
        ):
            put(self.model, checkpoint.read_weights(self.bundle, there[best]))
            if self.ema is not None:
                put(self.model, checkpoint.read_tensors(there[best], "ema."))
        elif self.ema is not None:
            put(self.model, self.ema.means)
        checkpoint.publish_model(self.bundle, self.folder, state.step)

    def _averaged(self, steps: list[int]) -> list[int]:
        """The last checkpoints of the timetable: one that a signal made is not of it."""
        count, every = self.training.average, self.training.save_every
        planned = [step for step in steps if step and (step % every == 0 or step == self.training.steps)]
        return planned[-count:] if count > 1 else []

    def _facts(self) -> dict[str, Any]:
        """What the run is made by."""
        facts = {
            "training": {k: v for k, v in self.training.to_dict().items() if k not in FREE},
            "model": self.bundle.spec.to_dict(),
            "task": dict(self.update.task.fingerprint),
            "environment": environment(self.update.device),
            "code": commit_of_code(),
        }
        return dict(json.loads(json.dumps(facts)))  # as they will be read again

    def _compare(self, there: dict[str, Any]) -> None:
        """Another machine or another number of threads rounds in another order: that is said."""
        here = self.facts["environment"]
        odd = [
            f"{key} {str(there.get(key))[:40]} -> {here[key]}" for key in here if there.get(key) != here[key]
        ]
        if odd:
            message = f"resumed elsewhere ({', '.join(odd)}): close from here on, not bit for bit"
            self.warn(shortened(one_line(message), commit.LINE))
