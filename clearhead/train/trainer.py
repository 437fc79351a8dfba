"""The trainer: a bundle, a task and settings in; trained weights in a folder out.

A run is a function of its settings. Stopped, killed or out of disk at any moment, it resumes from its newest
intact checkpoint and ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..bundle import Bundle
from ..malloc import disable_trim
from ..store import target_folder
from ..tasks import Task
from .atomic_write import remove_leftovers
from .determinism import deterministic
from .lock import locked
from .log import Record
from .loop import TrainingLoop, TrainingResult
from .progress import Progress, QuietProgress
from .settings import Training
from .setup import ready_to_train
from .signals import StopSignals


class Trainer:
    """`folder` receives checkpoints, metrics.jsonl and finally the model; a run found in it is resumed.

    `log` is called with every record of metrics.jsonl; `progress` shows them (default: nothing is shown).
    `files` are texts by name to store beside the run, such as its settings. They are written once the folder
    is locked and its checkpoints are known to belong to this run: a run that fails its checks changes
    nothing.
    """

    def __init__(
        self,
        bundle: Bundle,
        task: Task[Any],
        training: Training,
        folder: str | Path,
        *,
        log: Callable[[Record], None] | None = None,
        progress: Progress | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self.bundle, self.task, self.training = bundle, task, training
        self.folder = target_folder(folder)
        self.log, self.files = log, files or {}
        self.progress: Progress = QuietProgress() if progress is None else progress

    def run(self) -> TrainingResult:
        """Train to the end, or until a signal or the time budget. The bundle then holds the weights."""
        disable_trim()
        ready = ready_to_train(self.bundle, self.training)
        with locked(self.folder), deterministic(self.training.threads), StopSignals() as signals:
            remove_leftovers(self.folder)
            try:
                with ready as found:
                    if found.names:
                        self.progress.write(str(found))
                    loop = TrainingLoop(
                        self.bundle, self.task, self.training, self.folder, self.progress, signals
                    )
                    loop.begin(self.files)
                    return loop.run(self.log)
            finally:
                self.progress.close()
