"""TensorBoard: the records of a run in, an event file that TensorBoard reads out.

Losses, rates and norms are under `train/`, scores under `valid/`, speeds under `speed/`; samples are texts.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..errors import MissingError
from .log import Record

TENSORBOARD_FOLDER = "tensorboard"


class TensorBoardLog:
    """A listener for `Trainer(log=...)`: writes to `folder/tensorboard`. Close it after the run."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingError("clearhead[tensorboard]", "a log for TensorBoard") from None
        self._open: Any = SummaryWriter
        self._folder = Path(folder) / TENSORBOARD_FOLDER
        self._writer: Any = None

    def __call__(self, record: Record) -> None:
        step = record["step"]
        if self._writer is None:
            # A resumed run repeats the steps after its checkpoint: TensorBoard is to forget the first ones.
            self._writer = self._open(str(self._folder), purge_step=step)
        for name, value in _scalars(record).items():
            self._writer.add_scalar(name, value, step)
        for number, line in enumerate(record.get("samples", ())):
            self._writer.add_text(f"samples/{number}", line, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _scalars(record: Record) -> dict[str, float]:
    """The numbers of a record by their names in TensorBoard; those that are not finite are left out."""
    split = record.get("split")
    if split == "valid":
        groups: dict[str, Any] = {"valid": record.get("scores", {})}
    elif split is None:
        step = {name: value for name, value in record.items() if name not in ("step", "speed")}
        groups = {"train": step, "speed": record.get("speed", {})}
    else:
        groups = {}
    return {
        f"{group}/{name}": float(value)
        for group, values in groups.items()
        for name, value in values.items()
        if type(value) in (int, float) and math.isfinite(value)
    }
