"""The trainer: a bundle, a task and settings in; better weights in a folder out.

A run is a function of its settings. Stopped, killed or out of disk at any moment, it goes on from its newest
whole checkpoint and ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..bundle import Bundle
from ..heap import keep_memory
from ..tasks import Task
from ..tune import layout
from .commit import sweep
from .exact import repeatable
from .lock import locked
from .log import Record
from .progress import Progress, Quiet
from .run import Result, Run
from .settings import Training
from .signals import Interruption


class Trainer:
    """`folder` is where checkpoints, metrics.jsonl and at the end the model go; a run in it is resumed.

    `log` is called with every record of metrics.jsonl, `progress` shows them; without one, nothing is shown.
    `files` are texts by name to put beside the run, such as its settings. They are written when the folder is
    locked and its checkpoints are known to be of this run: what is refused changes nothing.
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
        self.folder = Path(folder).resolve()
        self.log, self.files = log, files or {}
        self.progress: Progress = Quiet() if progress is None else progress

    def run(self) -> Result:
        """Train to the end, or until a signal or the time budget. The bundle then holds the weights."""
        keep_memory()
        model = self.bundle.model
        mode = model.training
        with locked(self.folder), repeatable(self.training.threads), Interruption() as interruption:
            sweep(self.folder)
            try:
                run = Run(self.bundle, self.task, self.training, self.folder, self.progress, interruption)
                run.begin(self.files)
                return run.to_the_end(self.log)
            finally:
                model.train(mode)
                layout.for_inference(model)  # the bundle answers as its folder will when it is loaded
                self.progress.close()
