"""Training: a bundle, a task and settings in; trained weights out. Deterministic, resumable at any moment."""

from ..store.manifest import verify
from .atomic_write import checkpoints
from .average import Ema, average_weights
from .log import Record, read_log, without_timing
from .loop import TrainingResult
from .optim import SGD, Adam, AdamW, Optimizer, parameter_groups
from .progress import BarProgress, LineProgress, Progress, QuietProgress, default_progress
from .schedule import SCHEDULES, Constant, Cosine, InverseSqrt, LinearDecay, Noam, Schedule
from .settings import Training
from .trainer import Trainer

__all__ = [
    "Trainer", "Training", "TrainingResult",
    # the options
    "Optimizer", "AdamW", "Adam", "SGD",
    "Schedule", "Noam", "InverseSqrt", "Cosine", "LinearDecay", "Constant", "SCHEDULES",
    # progress, and reading the log of a run
    "Progress", "QuietProgress", "LineProgress", "BarProgress", "default_progress",
    "Record", "read_log", "without_timing", "checkpoints", "verify",
    # the parts
    "Ema", "average_weights", "parameter_groups",
]  # fmt: skip
