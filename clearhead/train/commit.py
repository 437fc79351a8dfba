"""Commits: files in, a checkpoint folder out that is whole or not there; and the proof that it is whole.

    .tmp-...  ->  files, each synced  ->  MANIFEST.json, synced  ->  one rename  ->  read again  ->  prune

There is no pointer to the latest one: the newest folder whose manifest is right is the latest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import LoadError, SaveError, TrainError
from ..store.line import one_line, quoted, reason
from ..store.place import sync_file, sync_folder

MANIFEST = "MANIFEST.json"
NAME = re.compile(r"checkpoint-(\d{6,})")
Warn = Callable[[str], None]


def commit(folder: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """`fill` is given a folder to make and write into; what it wrote becomes `checkpoint-NNNNNN`."""
    target = folder / f"checkpoint-{step:06d}"
    aside = folder / f".tmp-{target.name}-{os.getpid()}"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        fill(aside)
        _seal(aside, step)
        if os.path.lexists(target):  # a broken one: a whole one would have been resumed from
            os.rename(target, folder / f".del-{target.name}-{os.getpid()}")
        os.rename(aside, target)
        sync_folder(folder)
        verify(target)
    except Exception as error:  # a full disk has many names; ours is one line
        cause = error.__cause__ if isinstance(error, SaveError) and error.__cause__ else error
        message = f"{target} was not saved: {reason(cause)}; earlier checkpoints are as they were"
        raise SaveError(one_line(message)) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A disk that fails, in one line."""
    try:
        yield
    except OSError as error:
        raise SaveError(one_line(f"{path} cannot be written: {reason(error)}")) from error


def verify(checkpoint: Path) -> None:
    """Read everything again; the first file that is not what was written is named."""
    for name, wanted in _manifest(checkpoint)["files"].items():
        path = checkpoint / name
        try:
            found = _measure(path)
        except OSError as error:
            raise LoadError(one_line(f"{path} cannot be read: {reason(error)}")) from error
        for key, value in wanted.items():
            if found[key] != value:
                message = f"{path} is not what was saved: its {key} is {quoted(found[key])}"
                raise LoadError(one_line(f"{message}, the manifest says {quoted(value)}"))


def checkpoints(folder: Path) -> dict[int, Path]:
    """Checkpoint folders by step, oldest first, whole or not."""
    found = {path: NAME.fullmatch(path.name) for path in folder.iterdir() if path.is_dir()}
    return dict(sorted((int(match[1]), path) for path, match in found.items() if match))


def newest(folder: Path, warn: Warn) -> Path | None:
    """The newest checkpoint that is whole; each newer one that is not is named."""
    for path in reversed(checkpoints(folder).values()):
        if whole(path, warn):
            return path
    return None


def whole(checkpoint: Path, warn: Warn) -> bool:
    try:
        verify(checkpoint)
    except LoadError as error:
        warn(f"{checkpoint.name} is broken and left out: {error}")
        return False
    return True


def prune(folder: Path, keep: set[int]) -> None:
    for step, path in checkpoints(folder).items():
        if step not in keep:
            doomed = folder / f".del-{path.name}-{os.getpid()}"
            with writing(folder):  # renamed first: a folder half removed is never taken for a checkpoint
                os.rename(path, doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what a process that died left behind, here and where the finished model is put together."""
    left = [path for path in folder.iterdir() if path.name.startswith((".tmp-", ".del-"))]
    own = f".tmp-{folder.name}-"
    with suppress(OSError):  # a parent that may not be listed
        left += [path for path in folder.parent.iterdir() if path.name.startswith(own)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder for one trainer alone. The lock goes with the process, however it ends."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _take(descriptor):
            owner = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
            message = f"another trainer is at work in {folder}: process {owner}"
            raise TrainError(one_line(f"{message}; wait for it, or choose another folder"))
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    if sys.platform == "win32":  # which has no such lock
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _seal(folder: Path, step: int) -> None:
    """Sync every file, write down what it is, and sync that, too."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in paths:
        sync_file(path)
    files = {path.relative_to(folder).as_posix(): _measure(path) for path in paths}
    (folder / MANIFEST).write_bytes(_text({"format": 1, "step": step, "files": files}))
    sync_file(folder / MANIFEST)
    for room in {path.parent for path in [*paths, folder / MANIFEST]}:
        sync_folder(room)


def _text(body: dict[str, Any]) -> bytes:
    """A manifest, sealed with its own hash: a change of any byte of it shows."""
    seal = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "seal": seal}, indent=1, sort_keys=True) + "\n").encode()


def _manifest(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / MANIFEST
    try:
        data = path.read_bytes()
        body = json.loads(data)
        body.pop("seal")
        if _text(body) == data:
            return dict(body)
    except OSError as error:
        raise LoadError(one_line(f"{path} cannot be read: {reason(error)}")) from error
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        pass
    raise LoadError(one_line(f"{path} is not what was saved"))


def _measure(path: Path) -> dict[str, Any]:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
        return {"size": file.tell(), "sha256": digest.hexdigest()}
