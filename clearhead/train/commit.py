"""Commits: files in, a checkpoint folder out that is whole or not there; and the proof that it is whole.

    .tmp-...  ->  files, each synced  ->  MANIFEST.json, synced  ->  one rename  ->  read again  ->  prune

A folder that goes is renamed to .del-... first; names with .tmp- and .del- are removed at the next start.

There is no pointer to the latest one: the newest folder whose manifest is right is the latest.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from ..errors import LoadError, SaveError, one_line, reason, shortened
from ..store.manifest import seal, verify
from ..store.place import sync_file, sync_folder

NAME = re.compile(r"checkpoint-([0-9]{6,18})")
Warn = Callable[[str], None]
LINE = 280  # characters of a warning


def commit(folder: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """`fill` is given a folder to make and write into; what it wrote becomes `checkpoint-NNNNNN`."""
    target = folder / name_of(step)
    aside = folder / f".tmp-{target.name}-{os.getpid()}"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        fill(aside)
        _seal(aside, step)
        if os.path.lexists(target):  # a broken one: a whole one would have been resumed from
            _discard(target)
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


def name_of(step: int) -> str:
    return f"checkpoint-{step:06d}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A disk that fails, in one line."""
    try:
        yield
    except OSError as error:
        raise SaveError(one_line(f"{path} cannot be written: {reason(error)}")) from error


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
        warn(shortened(f"{checkpoint.name} is broken and left out: {error}", LINE))
        return False
    return True


def prune(folder: Path, keep: set[int]) -> None:
    for step, path in checkpoints(folder).items():
        if step not in keep:
            with writing(folder):
                _discard(path)


def sweep(folder: Path) -> None:
    """Remove what a process that died left behind, here and where the finished model is put together."""
    with writing(folder):
        left = [path for path in folder.iterdir() if path.name.startswith((".tmp-", ".del-"))]
    own = f".tmp-{folder.name}-"
    with suppress(OSError):  # a parent that may not be listed
        left += [path for path in folder.parent.iterdir() if path.name.startswith(own)]
    for path in left:
        _remove(path)


def _seal(folder: Path, step: int) -> None:
    """Sync every file, write down what it is, and sync that, too."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in paths:
        sync_file(path)
    for inside in {path.parent for path in paths} - {folder}:
        sync_folder(inside)
    seal(folder, [path.relative_to(folder).as_posix() for path in paths], step)


def _discard(path: Path) -> None:
    """Renamed first: a folder half removed is never taken for a checkpoint. No two names are the same."""
    doomed = path.with_name(f".del-{path.name}-{os.getpid()}-{token_hex(4)}")
    os.rename(path, doomed)
    _remove(doomed)


def _remove(path: Path) -> None:
    """A folder with all that is in it, a file, or a link but not what it points at."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
