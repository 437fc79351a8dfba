"""The lock of a run's folder: a folder in, one trainer alone in it out; or who is there already."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import TrainError, one_line
from .commit import writing

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder for one trainer alone. The lock goes with the process, however it ends.

    A folder that is not there is made. An attempt that fails takes back what it made: its lock, and the
    folders if nothing came into them.
    """
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    with writing(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, is_new, is_ours = _lock(folder / LOCK)
        except BaseException:
            _remove_empty(made)
            raise
    try:
        if not is_ours:
            is_new = False
            raise _occupied(folder, descriptor)
        with writing(folder):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                (folder / LOCK).unlink()
        _remove_empty(made)
        raise
    finally:
        os.close(descriptor)


def _lock(path: Path) -> tuple[int, bool, bool]:
    """A descriptor of the lock file, whether this call made the file, and whether the lock is ours."""
    while True:
        descriptor, is_new = _open(path)
        if not _take(descriptor):
            return descriptor, is_new, False
        # Somebody who failed may have removed the file after we opened it: such a lock keeps nobody out.
        if os.fstat(descriptor).st_nlink > 0 or sys.platform == "win32":
            return descriptor, is_new, True
        os.close(descriptor)


def _open(path: Path) -> tuple[int, bool]:
    flags = os.O_RDWR | getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644), True
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT, 0o644), False


def _take(descriptor: int) -> bool:
    if sys.platform == "win32":  # which has no such lock
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _occupied(folder: Path, descriptor: int) -> TrainError:
    owner = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
    message = f"another trainer is at work in {folder}: process {owner}"
    return TrainError(one_line(f"{message}; wait for it, or choose another folder"))


def _remove_empty(folders: list[Path]) -> None:
    """From the innermost outwards; one that holds something stays, with those around it."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
