"""More steps for a run: its settings, and those it was made with, in; whether they can continue it out.

A run that has ended continues if `steps` or `patience` is raised; any other setting must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import TrainError
from .settings import MAY_GROW_ON_RESUME, Training
from .state import TrainingState


@dataclass(frozen=True)
class RaisedSettings:
    """`settings` are those of the checkpoint with what was raised; `steps` is how many it had, if fewer."""

    settings: Any
    steps: int | None = None

    def warning(self, steps: int, done: int, rate: float) -> str:
        return (
            f"the run was made for {self.steps:,} steps and now has {steps:,}: from step {done + 1:,} on the "
            f"learning rate follows the schedule of {steps:,} steps, beginning with {rate:.3g}; the steps "
            f"before stay as they are"
        )


def check_growth(training: Training, saved: Any, state: TrainingState) -> RaisedSettings:
    """Raise if the run has taken more steps than it is to have."""
    if training.steps < state.step:
        raise TrainError(
            f"the run has taken {state.step:,} steps and steps is {training.steps:,}; give {state.step:,} or "
            f"more, or choose another folder"
        )
    if not isinstance(saved, dict):
        return RaisedSettings(saved)
    raised = {
        name: getattr(training, name)
        for name in MAY_GROW_ON_RESUME
        if _is_raised(saved.get(name), getattr(training, name))
    }
    return RaisedSettings(saved | raised, saved["steps"] if "steps" in raised else None)


def _is_raised(before: Any, now: int | None) -> bool:
    """None is patience without end."""
    if type(before) is not int:
        return False
    return now is None or now > before
