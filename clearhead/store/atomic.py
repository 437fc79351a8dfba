"""Atomic replacement of files and folders: finished files are moved into place, all of them or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .shards import INDEX_FILE, SHARD_NAME, is_weights

CONFIG_FILE = "config.json"


def move_into_place(
    staging: Path,
    folder: Path,
    names: Sequence[str],
    outdated: Sequence[str] = (),
    *,
    config: str = CONFIG_FILE,
) -> None:
    """Move `staging/new` to `folder`. A new folder appears by one rename. An existing one gets the files
    one by one, loses weights of an earlier save that are not in this one, and keeps everything else.

    `outdated` are files that describe the earlier ones: they are removed before the first new file is moved.
    `config` is the file without which the folder does not load.
    """
    new = staging / "new"
    for name in names:
        sync_file(new / name)
    _sync_parents(new, names)
    if folder.exists():
        _merge(new, folder, names, outdated, config, old=staging / "old")
        return
    os.replace(new, folder)
    try:
        sync_folder(folder.parent)
    except BaseException:
        os.replace(folder, new)
        raise


def _merge(
    new: Path, folder: Path, names: Sequence[str], outdated: Sequence[str], config: str, *, old: Path
) -> None:
    is_model = config == CONFIG_FILE
    stale = [name for name in os.listdir(folder) if is_model and is_weights(name) and name not in names]
    folders = {parent for name in names for parent in (folder / name).parents if not parent.exists()}
    for name in [*names, *stale, *outdated]:
        _back_up(folder / name, old / name)
    try:
        for parent in sorted(folders):
            parent.mkdir()
        for name in outdated:
            (folder / name).unlink(missing_ok=True)
        _move(new, folder, names, stale, config)
        _sync_parents(folder, names)
    except BaseException:
        _restore(old, folder, [*names, *stale, *outdated], folders)
        raise


def _move(new: Path, folder: Path, names: Sequence[str], stale: Sequence[str], config: str) -> None:
    """Weights come after all other files, the index after all weights; then the old weights are removed.

    A process killed halfway must not leave a mixture of two models that loads: better a folder that does not.
    """
    if any(SHARD_NAME.fullmatch(name) and (folder / name).exists() for name in names):
        # Shards of the same names: killed between two of them, a folder without an index does not load,
        # but a mixture of two models would.
        (folder / INDEX_FILE).unlink(missing_ok=True)
    last = []
    if not all(_is_tensors(name) or _same_content(new / name, folder / name) for name in names):
        # Another config or tokenizer must not be beside the old weights: they would load, and give other
        # numbers. So config.json is removed first and written last: without it a folder does not load.
        (folder / config).unlink(missing_ok=True)
        last = [config]
    first = [name for name in names if name not in last]
    for name in sorted(first, key=lambda name: (_is_tensors(name), name == INDEX_FILE)):
        os.replace(new / name, folder / name)
    for name in stale:
        (folder / name).unlink()
    for name in last:
        os.replace(new / name, folder / name)


def _is_tensors(name: str) -> bool:
    return is_weights(name) or name.endswith(".safetensors")


def _same_content(one: Path, two: Path) -> bool:
    return two.is_file() and one.read_bytes() == two.read_bytes()


def _back_up(path: Path, backup: Path) -> None:
    """Keep the present file under a second name by a hard link, or a copy where there are no links."""
    if os.path.lexists(path):
        backup.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, backup, follow_symlinks=False)
        except (OSError, NotImplementedError):
            shutil.copy2(path, backup, follow_symlinks=False)


def _restore(old: Path, folder: Path, names: Sequence[str], folders: set[Path]) -> None:
    for name in names:
        if os.path.lexists(old / name):
            os.replace(old / name, folder / name)
        else:
            with suppress(OSError):  # it did not exist before, and perhaps was never written
                (folder / name).unlink()
    for parent in sorted(folders, reverse=True):
        with suppress(OSError):
            parent.rmdir()


def write_file_atomically(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader, or a crash in between, sees the old or the new content."""
    staging = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        staging.write_bytes(data)
        sync_file(staging)
        os.replace(staging, path)
    except BaseException:
        with suppress(OSError):
            staging.unlink()
        raise
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """fsync, so that the content survives a power cut."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_parents(folder: Path, names: Sequence[str]) -> None:
    for parent in {(folder / name).parent for name in names}:
        sync_folder(parent)


def sync_folder(path: Path) -> None:
    """fsync a folder, so that names survive a power cut, too; Windows has no such call."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
