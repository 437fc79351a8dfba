"""Training: a bundle, a task and settings in; trained weights out. Deterministic, resumable at any moment."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from ..store import verify
from .atomic_write import checkpoints, disk_errors
from .average import Ema, average_weights
from .determinism import deterministic
from .estimate import estimate
from .freeze import Frozen, frozen_parameters
from .log import METRICS_FILE, Record, read_log, without_timing
from .loop import FINISHED, TrainingResult
from .memory import check_memory, free_memory, step_memory
from .optim import SGD, Adam, AdamW, Optimizer, parameter_groups
from .optimizer_step import OptimizerStep, hidden_size
from .progress import BarProgress, LineProgress, Progress, QuietProgress, default_progress
from .schedule import SCHEDULES, Constant, Cosine, InverseSqrt, LinearDecay, Noam, Schedule
from .settings import Training
from .setup import training_device
from .signals import SAVE_SIGNAL
from .state import TrainingState
from .tensorboard import TensorBoardLog
from .trainer import Trainer

__all__ = [
    "Trainer", "Training", "TrainingResult",
    # the options
    "Optimizer", "AdamW", "Adam", "SGD", "Schedule", "Noam", "InverseSqrt", "Cosine", "LinearDecay",
    "Constant", "SCHEDULES",
    # progress, and reading the log of a run
    "Progress", "QuietProgress", "LineProgress", "BarProgress", "default_progress", "Record",
    "read_log", "without_timing", "checkpoints", "verify", "TensorBoardLog", "FINISHED",
    # before a run: what is frozen, what fits in memory
    "Frozen", "frozen_parameters", "check_memory", "step_memory", "free_memory",
    # the parts
    "Ema", "average_weights", "parameter_groups",
    # for the other packages
    "disk_errors", "deterministic", "estimate", "METRICS_FILE", "OptimizerStep", "hidden_size",
    "SAVE_SIGNAL", "TrainingState", "training_device",
]  # fmt: skip


class _CallablePackage(ModuleType):
    """`clearhead.train` is this package, and `clearhead.train(bundle, data)` is public API as well."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        # The function is in a layer above, so it is found by name when it is called.
        return import_module("clearhead.recipes").train(*args, **settings)


sys.modules[__name__].__class__ = _CallablePackage
