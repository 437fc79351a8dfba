"""Atomic writing of checkpoint folders: after a crash a folder is either complete or not there.

    .tmp-...  ->  files, each synced  ->  MANIFEST.json, synced  ->  one rename  ->  verified  ->  prune

A folder that is removed is renamed to .del-... first; leftover .tmp- and .del- names are removed at the next
start. There is no pointer to the latest checkpoint: it is the newest folder whose manifest verifies.
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
from ..store import sync_file, sync_folder, verify, write_manifest

CHECKPOINT_NAME = re.compile(r"checkpoint-([0-9]{6,18})")
Warn = Callable[[str], None]
MAX_WARNING = 280  # characters of a warning


def write_atomically(folder: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """`fill` creates the folder it is given and writes into it; the result becomes `checkpoint-NNNNNN`."""
    target = folder / checkpoint_name(step)
    staging = folder / f".tmp-{target.name}-{os.getpid()}"
    try:
        shutil.rmtree(staging, ignore_errors=True)
        fill(staging)
        _sync_and_write_manifest(staging, step)
        if os.path.lexists(target):  # a broken one: an intact one would have been resumed from
            _discard(target)
        os.rename(staging, target)
        sync_folder(folder)
        verify(target)
    except Exception as error:  # a full disk raises many kinds of errors; report it in one line
        cause = error.__cause__ if isinstance(error, SaveError) and error.__cause__ else error
        message = f"{target} was not saved: {reason(cause)}; earlier checkpoints are as they were"
        raise SaveError(one_line(message)) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def checkpoint_name(step: int) -> str:
    return f"checkpoint-{step:06d}"


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Report errors of the disk in one line."""
    try:
        yield
    except OSError as error:
        raise SaveError(one_line(f"{path} cannot be written: {reason(error)}")) from error


def checkpoints(folder: Path) -> dict[int, Path]:
    """Checkpoint folders by step, oldest first, intact or not."""
    matches = {path: CHECKPOINT_NAME.fullmatch(path.name) for path in folder.iterdir() if path.is_dir()}
    return dict(sorted((int(match[1]), path) for path, match in matches.items() if match))


def newest_checkpoint(folder: Path, warn: Warn) -> Path | None:
    """The newest intact checkpoint; warns of each newer one that is broken."""
    for path in reversed(checkpoints(folder).values()):
        if is_intact(path, warn):
            return path
    return None


def is_intact(checkpoint: Path, warn: Warn) -> bool:
    try:
        verify(checkpoint)
    except LoadError as error:
        warn(shortened(f"{checkpoint.name} is broken and left out: {error}", MAX_WARNING))
        return False
    return True


def prune_checkpoints(folder: Path, keep: set[int]) -> None:
    for step, path in checkpoints(folder).items():
        if step not in keep:
            with disk_errors(folder):
                _discard(path)


def remove_leftovers(folder: Path) -> None:
    """Remove what a crashed process left behind, here and beside the folder, where models are staged."""
    with disk_errors(folder):
        leftovers = [path for path in folder.iterdir() if path.name.startswith((".tmp-", ".del-"))]
    staged = f".tmp-{folder.name}-"
    with suppress(OSError):  # a parent that may not be listed
        leftovers += [path for path in folder.parent.iterdir() if path.name.startswith(staged)]
    for path in leftovers:
        _remove(path)


def _sync_and_write_manifest(folder: Path, step: int) -> None:
    """Sync every file, then write and sync the manifest."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in paths:
        sync_file(path)
    for subfolder in {path.parent for path in paths} - {folder}:
        sync_folder(subfolder)
    write_manifest(folder, [path.relative_to(folder).as_posix() for path in paths], step)


def _discard(path: Path) -> None:
    """Rename, then remove: a half-removed folder must never look like a checkpoint."""
    trash = path.with_name(f".del-{path.name}-{os.getpid()}-{token_hex(4)}")
    os.rename(path, trash)
    _remove(trash)


def _remove(path: Path) -> None:
    """Remove a folder with its content, a file, or a link (not its target)."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
