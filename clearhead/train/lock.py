"""The lock of a run folder: one trainer at a time; the error names the process that holds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import TrainError, one_line
from .atomic_write import disk_errors

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. The system releases it with the process, however that ends.

    A missing folder is created. An attempt that fails removes what it created: its lock file, and the folders
    if they are still empty.
    """
    created = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    with disk_errors(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, is_new, is_ours = _acquire(folder / LOCK)
        except BaseException:
            _remove_empty(created)
            raise
    try:
        if not is_ours:
            is_new = False
            owner = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
            message = f"another trainer is running in {folder}: process {owner}"
            raise TrainError(one_line(f"{message}; wait for it, or choose another folder"))
        with disk_errors(folder):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                (folder / LOCK).unlink()
        _remove_empty(created)
        raise
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> tuple[int, bool, bool]:
    """A descriptor of the lock file, whether this call created the file, and whether the lock is ours."""
    while True:
        descriptor, is_new = _open(path)
        if not _try_lock(descriptor):
            return descriptor, is_new, False
        # A failing process may have removed the file after we opened it: locking it would exclude nobody.
        if os.fstat(descriptor).st_nlink > 0 or sys.platform == "win32":
            return descriptor, is_new, True
        os.close(descriptor)


def _open(path: Path) -> tuple[int, bool]:
    flags = os.O_RDWR | getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644), True
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT, 0o644), False


def _try_lock(descriptor: int) -> bool:
    if sys.platform == "win32":  # no flock there
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_empty(folders: list[Path]) -> None:
    """Remove empty folders, innermost first; one that is not empty stays, and so do its parents."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
