"""Training: a loss in, better weights out; exact, and resumable at any moment."""

from ..store.manifest import verify
from .average import Ema, mean
from .commit import checkpoints
from .log import Record, determined, read_log
from .optim import SGD, Adam, AdamW, Optimizer, parameter_groups
from .progress import Bar, Lines, Progress, Quiet, watching
from .run import Result
from .schedule import SCHEDULES, Constant, Cosine, InverseSqrt, LinearDecay, Noam, Schedule
from .settings import Training
from .trainer import Trainer

__all__ = [
    "Trainer", "Training", "Result",
    # the choices
    "Optimizer", "AdamW", "Adam", "SGD",
    "Schedule", "Noam", "InverseSqrt", "Cosine", "LinearDecay", "Constant", "SCHEDULES",
    # watching, and reading what a run left
    "Progress", "Quiet", "Lines", "Bar", "watching",
    "Record", "read_log", "determined", "checkpoints", "verify",
    # the parts
    "Ema", "mean", "parameter_groups",
]  # fmt: skip
