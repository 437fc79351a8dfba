"""The log: one record after another in, `metrics.jsonl` out. It is the one source of truth about a run.

A line is an object. Under "speed" stands what the clock says; all the rest is determined by the run.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import IO, Any

from ..readfile import open_regular
from ..store.place import write_file
from .commit import writing

Record = dict[str, Any]
NAME = "metrics.jsonl"


class Log:
    """The file while a run is at work. It begins where a checkpoint ends: later lines are taken away."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / NAME
        with writing(self.path):
            _cut(self.path, step)
            self._file: IO[bytes] = self.path.open("ab")

    def write(self, record: Record) -> None:
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with writing(self.path):
            self._file.write(line)
            self._file.flush()

    def validation(self, step: int) -> Record | None:
        """The scores of a validation that was finished, where the file has them."""
        for line in reversed(_lines(self.path)):
            record: Record = json.loads(line)
            if record["step"] < step:
                return None
            if record.get("split") == "valid" and _are_scores(record.get("scores")):
                return record
        return None

    def sync(self) -> None:
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with writing(self.path):
            self._file.close()


def read_log(folder: str | Path) -> list[Record]:
    """The records of a run folder; a last line that was cut short does not count."""
    return [json.loads(line) for line in _lines(Path(folder) / NAME)]


def determined(record: Record) -> Record:
    """A record without what the clock says: equal in every repetition of a run."""
    return {key: value for key, value in record.items() if key != "speed"}


def _cut(path: Path, step: int) -> None:
    """Leave the lines up to a step. The new file takes the place of the old one at once."""
    if not os.path.lexists(path):
        return
    whole = _bytes(path)
    kept = b"".join(line for line in _whole_lines(whole) if json.loads(line)["step"] <= step)
    if kept != whole:
        write_file(path, kept)


def _lines(path: Path) -> list[bytes]:
    return _whole_lines(_bytes(path)) if path.exists() else []


def _bytes(path: Path) -> bytes:
    """What is no regular file is not read: it may have no end."""
    with open_regular(path) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def _whole_lines(data: bytes) -> list[bytes]:
    """Whole lines, up to the first that is no record."""
    good: list[bytes] = []
    for line in data.splitlines(keepends=True):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            break
        is_record = isinstance(record, dict) and type(record.get("step")) is int
        if not line.endswith(b"\n") or not is_record:
            break
        good.append(line)
    return good


def _are_scores(value: Any) -> bool:
    return isinstance(value, dict) and all(v is None or type(v) in (int, float) for v in value.values())


def _finite(value: Any) -> Any:
    """JSON has no NaN: a score that is no number is null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
