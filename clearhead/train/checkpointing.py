"""Checkpointing: when a run resumes, what it saves, which checkpoints are kept, and the final model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..bundle import Bundle
from ..errors import TrainError, one_line, shortened
from . import atomic_write, checkpoint
from .average import Ema, average_weights
from .determinism import environment_facts, git_commit
from .more_steps import check_growth
from .optimizer_step import MAX_LOSS_SCALE, OptimizerStep
from .settings import MAY_CHANGE_ON_RESUME
from .state import TrainingState, ema_tensors, load_weights, optimizer_tensors, restore_optimizer

MUST_MATCH = ("training", "model", "task")  # the facts that must be the same when a run is resumed


class Checkpointer:
    def __init__(
        self,
        bundle: Bundle,
        optimizer_step: OptimizerStep,
        ema: Ema | None,
        folder: Path,
        warn: atomic_write.Warn,
    ) -> None:
        self.bundle, self.model, self.optimizer_step, self.ema = bundle, bundle.model, optimizer_step, ema
        self.training, self.folder, self.warn = optimizer_step.training, folder, warn
        self.facts = self._collect_facts()
        self.saved: int | None = None  # the step of the newest checkpoint
        self.extended = False  # whether the run was resumed with more steps than it was made for

    def resume(self) -> TrainingState:
        """Load the newest intact checkpoint into the model, or start from step 0."""
        path = atomic_write.newest_checkpoint(self.folder, self.warn)
        if path is None:
            if (self.folder / "config.json").exists() and not atomic_write.checkpoints(self.folder):
                message = f"{self.folder} holds a model that is not from this run; choose another folder"
                raise TrainError(one_line(message))
            return TrainingState(scale=MAX_LOSS_SCALE if self.optimizer_step.uses_loss_scale else 1.0)
        state, facts = checkpoint.read_state(path)
        growth = check_growth(self.training, facts.get("training"), state)
        checkpoint.check_same_config(
            path, {key: self.facts[key] for key in MUST_MATCH}, facts | {"training": growth.settings}
        )
        if growth.steps is not None:
            self.extended = True
            rate = self.training.rate(self.optimizer_step.width, state.step + 1)
            self.warn(growth.warning(self.training.steps, state.step, rate))
        load_weights(self.model, checkpoint.read_weights(self.bundle, path))
        restore_optimizer(
            self.model, self.optimizer_step.optimizer, checkpoint.read_tensors(path, "optimizer.")
        )
        if self.ema is not None:
            self.ema.restore(checkpoint.read_tensors(path, "ema."))
        environment = facts.get("environment")
        self._warn_if_environment_differs(environment if isinstance(environment, dict) else {})
        self.saved = state.step
        return state

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint, unless this step has one."""
        if self.saved == state.step:
            return
        tensors = optimizer_tensors(self.model, self.optimizer_step.optimizer) | ema_tensors(self.ema)
        checkpoint.write_checkpoint(self.folder, self.bundle, state, tensors, self.facts)
        self.saved = state.step
        self.prune(state)

    def prune(self, state: TrainingState) -> None:
        """Remove the checkpoints that are no longer needed."""
        # Later ones are broken: the run resumed from an earlier checkpoint and left them behind.
        steps = [step for step in atomic_write.checkpoints(self.folder) if step <= state.step]
        best = [] if state.best_step is None else [state.best_step]
        atomic_write.prune_checkpoints(
            self.folder, {*steps[-self.training.keep :], *self._steps_to_average(steps), *best}
        )

    def publish(self, state: TrainingState) -> None:
        """Write the final model into the run folder: averaged, best or last weights."""
        best, saved = state.best_step, atomic_write.checkpoints(self.folder)
        averaged = [
            saved[step]
            for step in self._steps_to_average(list(saved))
            if atomic_write.is_intact(saved[step], self.warn)
        ]
        if averaged:
            load_weights(
                self.model, average_weights(checkpoint.read_weights(self.bundle, path) for path in averaged)
            )
        elif (
            best is not None
            and best != state.step
            and best in saved
            and atomic_write.is_intact(saved[best], self.warn)
        ):
            load_weights(self.model, checkpoint.read_weights(self.bundle, saved[best]))
            if self.ema is not None:
                load_weights(self.model, checkpoint.read_tensors(saved[best], "ema."))
        elif self.ema is not None:
            load_weights(self.model, self.ema.means)
        checkpoint.publish_model(self.bundle, self.folder, state.step)

    def _steps_to_average(self, steps: list[int]) -> list[int]:
        """The last scheduled checkpoints; those that a signal caused are not averaged."""
        count, every = self.training.average, self.training.save_every
        scheduled = [step for step in steps if step and (step % every == 0 or step == self.training.steps)]
        return scheduled[-count:] if count > 1 else []

    def _collect_facts(self) -> dict[str, Any]:
        """What the numbers of the run depend on."""
        facts = {
            "training": {k: v for k, v in self.training.to_dict().items() if k not in MAY_CHANGE_ON_RESUME},
            "model": self.bundle.spec.to_dict(),
            **({"tuning": self.bundle.tuning.value.to_dict()} if self.bundle.tuning else {}),
            "task": dict(self.optimizer_step.task.fingerprint),
            "environment": environment_facts(self.optimizer_step.device),
            "code": git_commit(),
        }
        return dict(
            json.loads(json.dumps(facts))
        )  # compared with facts read from JSON: tuples must be lists here, too

    def _warn_if_environment_differs(self, saved: dict[str, Any]) -> None:
        """Warn if the environment differs: another machine or thread count rounds differently."""
        here = self.facts["environment"]
        differences = [
            f"{key} {str(saved.get(key))[:40]} -> {here[key]}" for key in here if saved.get(key) != here[key]
        ]
        if differences:
            where = ", ".join(differences)
            message = f"resumed elsewhere ({where}): results are close from here on, not bit-identical"
            self.warn(shortened(one_line(message), atomic_write.MAX_WARNING))
