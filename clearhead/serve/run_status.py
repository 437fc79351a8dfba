"""The status of runs: a run folder in; its status, and its records as live events, out.

The folder is the only source, so runs started in a terminal or by another user are shown in the same way, and
nothing is lost when the page is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..recipes import SETTINGS_FILE, read_yaml
from ..train import METRICS_FILE

TAIL_BYTES = 65536  # of the log, to find its last record
LOCKS = Path("/proc/locks")


def status(folder: Path, *, starting: bool = False) -> dict[str, Any]:
    """The status of a run, its last step and its number of steps.

    `starting`: a process was started for it that does not hold the lock yet.
    """
    steps, step, pid = _total_steps(folder), _last_step(folder), training_process(folder)
    if not folder.exists():
        word = "gone"
    elif pid is not None and _is_stopped(pid):
        word = "paused"
    elif pid is not None:
        word = "training"
    elif starting:
        word = "starting"
    elif (step is not None and steps is not None and step < steps) or _has_no_steps(folder):
        word = "stopped"
    else:
        word = "ready"
    return {"status": word, "step": step, "steps": steps}


def _has_no_steps(folder: Path) -> bool:
    """Whether a run ended before its first step and has no model."""
    metrics = folder / METRICS_FILE
    return metrics.is_file() and metrics.stat().st_size == 0 and not (folder / "config.json").is_file()


def handles_signal(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal; without one the signal would end it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught, 16) >> (number - 1) & 1)


def training_process(folder: Path) -> int | None:
    """The id of the process that trains here: it holds a lock on the folder as long as it runs.

    This reads the system's list of locks. Trying to take the lock could make a starting trainer fail, and a
    process id stored in a file may have been reused.
    """
    try:
        inode = (folder / ".lock").stat().st_ino
        rows = [line.split() for line in LOCKS.read_text().splitlines()]
    except OSError:
        return None
    locks = [row for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5].endswith(f":{inode}")]
    pids = [int(row[4]) for row in locks if row[4].isdigit()]
    return pids[0] if pids and pids[0] > 1 else None


def _is_stopped(pid: int) -> bool:
    """Whether a process is suspended by SIGSTOP."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a run; empty if they cannot be read."""
    try:
        return read_yaml(folder / SETTINGS_FILE)
    except InputError:
        return {}


async def events(
    folder: Path, after: int, starting: Callable[[], bool] = lambda: False
) -> AsyncIterator[str]:
    """Records as server-sent events; an event's id is its line number, so a client can reconnect.

    Ends with `end` when no process trains in the folder and all records have been sent.
    """
    line, offset, quiet = 0, 0, 0
    while True:
        alive = training_process(folder) is not None or starting()
        text, size = _read(folder / METRICS_FILE, offset)
        if size < offset:  # the run was restarted, or resumed from an earlier step
            line, offset, after = 0, 0, 0
            yield "event: restart\ndata: {}\n\n"
            continue
        offset += len(text)
        batch = []
        for raw in text.splitlines():
            line += 1
            if line > after and (record := _record(raw)) is not None:
                batch.append(record)
        if batch:
            yield f"id: {line}\nevent: records\ndata: {json.dumps(batch, ensure_ascii=False)}\n\n"
            quiet = 0
        if not alive and not batch:
            yield f"event: end\ndata: {json.dumps(status(folder))}\n\n"
            return
        quiet += 1
        if quiet % 30 == 0:
            yield ": still here\n\n"  # a comment keeps the connection open
        await asyncio.sleep(0.4)


def _read(path: Path, offset: int) -> tuple[bytes, int]:
    """The complete lines after an offset, and the size of the file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(offset)
            text = file.read()
    except OSError:
        return b"", offset
    return text[: text.rfind(b"\n") + 1], size


def _record(raw: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(raw)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def _total_steps(folder: Path) -> int | None:
    train = read_settings(folder).get("train")
    steps = train.get("steps") if isinstance(train, dict) else None
    return steps if isinstance(steps, int) else None


def _last_step(folder: Path) -> int | None:
    """The step of the last complete record."""
    try:
        with (folder / METRICS_FILE).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return None
    for raw in reversed(lines):
        record = _record(raw)
        if record is not None:
            return int(record["step"])
    return None
