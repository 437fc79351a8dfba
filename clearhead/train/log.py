"""The metrics log: records in, `metrics.jsonl` out. It is the one source of truth about a run.

Each line is a JSON object. Timings are under "speed"; everything else is the same in every repetition.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import IO, Any

from ..readfile import open_regular
from ..store import write_file_atomically
from .atomic_write import disk_errors

Record = dict[str, Any]
METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """The open log of a run. Lines after the step of the resumed checkpoint are removed first."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / METRICS_FILE
        with disk_errors(self.path):
            _truncate(self.path, step)
            self._file: IO[bytes] = self.path.open("ab")

    def write(self, record: Record) -> None:
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with disk_errors(self.path):
            self._file.write(line)
            self._file.flush()

    def validation(self, step: int) -> Record | None:
        """The record of the finished validation of a step, if the file has one."""
        for line in reversed(_lines(self.path)):
            record: Record = json.loads(line)
            if record["step"] < step:
                return None
            if record.get("split") == "valid" and _are_scores(record.get("scores")):
                return record
        return None

    def sync(self) -> None:
        with disk_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with disk_errors(self.path):
            self._file.close()


def read_log(folder: str | Path) -> list[Record]:
    """The records of a run folder; an incomplete last line is ignored."""
    return [json.loads(line) for line in _lines(Path(folder) / METRICS_FILE)]


def without_timing(record: Record) -> Record:
    """A record without timings: equal in every repetition of a run."""
    return {key: value for key, value in record.items() if key != "speed"}


def _truncate(path: Path, step: int) -> None:
    """Keep the lines up to a step; the file is replaced atomically."""
    if not os.path.lexists(path):
        return
    data = _read_bytes(path)
    kept = b"".join(line for line in _whole_lines(data) if json.loads(line)["step"] <= step)
    if kept != data:
        write_file_atomically(path, kept)


def _lines(path: Path) -> list[bytes]:
    return _whole_lines(_read_bytes(path)) if path.exists() else []


def _read_bytes(path: Path) -> bytes:
    """Only regular files are read: a device may have no end."""
    with open_regular(path) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def _whole_lines(data: bytes) -> list[bytes]:
    """The complete lines before the first that is not a record."""
    complete: list[bytes] = []
    for line in data.splitlines(keepends=True):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            break
        is_record = isinstance(record, dict) and type(record.get("step")) is int
        if not line.endswith(b"\n") or not is_record:
            break
        complete.append(line)
    return complete


def _are_scores(value: Any) -> bool:
    return isinstance(value, dict) and all(v is None or type(v) in (int, float) for v in value.values())


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: such numbers become null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
