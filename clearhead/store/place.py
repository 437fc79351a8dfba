"""Moving into place: finished files aside in, the folder they belong in out; all of them, or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .shards import INDEX, SHARD, is_weights

CONFIG = "config.json"


def put_in_place(aside: Path, folder: Path, names: Sequence[str], outdated: Sequence[str] = ()) -> None:
    """Move `aside/new` to `folder`. A new folder appears by one rename; one that exists gets the files one
    by one, loses the weights of an earlier save that are not in this one, and keeps everything else.

    `outdated` are files that say something of the earlier ones: they go before the first new one comes.
    """
    new = aside / "new"
    for name in names:
        sync_file(new / name)
    _sync_rooms(new, names)
    if folder.exists():
        _merge(new, folder, names, outdated, old=aside / "old")
        return
    os.replace(new, folder)
    try:
        sync_folder(folder.parent)
    except BaseException:
        os.replace(folder, new)
        raise


def _merge(new: Path, folder: Path, names: Sequence[str], outdated: Sequence[str], *, old: Path) -> None:
    stale = [name for name in os.listdir(folder) if is_weights(name) and name not in names]
    rooms = {room for name in names for room in (folder / name).parents if not room.exists()}
    for name in [*names, *stale, *outdated]:
        _keep(folder / name, old / name)
    try:
        for room in sorted(rooms):
            room.mkdir()
        for name in outdated:
            (folder / name).unlink(missing_ok=True)
        _move(new, folder, names, stale)
        _sync_rooms(folder, names)
    except BaseException:
        _undo(old, folder, [*names, *stale, *outdated], rooms)
        raise


def _move(new: Path, folder: Path, names: Sequence[str], stale: Sequence[str]) -> None:
    """Weights after all else, the index after all weights, and then the old weights go.

    Whoever is killed on the way must not leave a mixture that opens: better a folder that is refused.
    """
    if any(SHARD.fullmatch(name) and (folder / name).exists() for name in names):
        # Shards of the same names: killed between two of them, a folder without an index is refused,
        # and a mixture of two models is not.
        (folder / INDEX).unlink(missing_ok=True)
    last = []
    if not all(is_weights(name) or _same(new / name, folder / name) for name in names):
        # Another config or tokenizer must not stand beside the old weights: they would open, and give other
        # numbers. So config.json goes first and comes last; without one a folder is refused.
        (folder / CONFIG).unlink(missing_ok=True)
        last = [CONFIG]
    first = [name for name in names if name not in last]
    for name in sorted(first, key=lambda name: (is_weights(name), name == INDEX)):
        os.replace(new / name, folder / name)
    for name in stale:
        (folder / name).unlink()
    for name in last:
        os.replace(new / name, folder / name)


def _same(one: Path, two: Path) -> bool:
    return two.is_file() and one.read_bytes() == two.read_bytes()


def _keep(path: Path, kept: Path) -> None:
    """A second name for what is there now, at no cost; a copy where the disk has no second names."""
    if os.path.lexists(path):
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, kept, follow_symlinks=False)
        except (OSError, NotImplementedError):
            shutil.copy2(path, kept, follow_symlinks=False)


def _undo(old: Path, folder: Path, names: Sequence[str], rooms: set[Path]) -> None:
    for name in names:
        if os.path.lexists(old / name):
            os.replace(old / name, folder / name)
        else:
            with suppress(OSError):  # it was not there before, and perhaps never came
                (folder / name).unlink()
    for room in sorted(rooms, reverse=True):
        with suppress(OSError):
            room.rmdir()


def write_file(path: Path, data: bytes) -> None:
    """One file, as it was or as it is to be: whoever reads it, or dies in between, never sees half of it."""
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        aside.write_bytes(data)
        sync_file(aside)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """So that the contents survive a power cut."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_rooms(folder: Path, names: Sequence[str]) -> None:
    for room in {(folder / name).parent for name in names}:
        sync_folder(room)


def sync_folder(path: Path) -> None:
    """So that names survive a power cut, too; Windows has no such call."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
