"""Manifests: the files of a folder in, MANIFEST.json out with their sizes and hashes; and the comparison.

A manifest holds a hash of its own content (`seal`), so a change of any byte of it is detected. It is in
every checkpoint, and beside the model that a run publishes. Code that overwrites these files removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import LoadError, one_line, quoted, reason
from ..readfile import open_regular, read_regular
from .atomic import write_file_atomically
from .shards import is_bare_name

MANIFEST = "MANIFEST.json"
MAX_MANIFEST_BYTES = 4 * 2**20  # bytes of a manifest: thirty thousand files


def write_manifest(folder: Path, names: Iterable[str], step: int) -> None:
    """Write a manifest of these files of the folder. They must be synced already."""
    files = {name: size_and_hash(folder / name) for name in sorted(names)}
    write_file_atomically(folder / MANIFEST, _serialize({"format": 1, "step": step, "files": files}))


def has_manifest(folder: Path) -> bool:
    """Whether the folder has a manifest of ours, damaged or not; other programs use the name, too."""
    try:
        data = read_regular(folder / MANIFEST, MAX_MANIFEST_BYTES)
    except OSError:
        return False
    return b'"sha256"' in data or b'"seal"' in data


def verify(folder: Path) -> int:
    """Check all files against the manifest; the error names the first that differs. Returns their number."""
    files = _read(folder / MANIFEST)
    for name, recorded in files.items():
        path = folder / name
        try:
            measured = size_and_hash(path, at_most=recorded["size"])
        except OSError as error:
            raise LoadError(one_line(f"{path} cannot be read: {reason(error)}")) from error
        for key in ("size", "sha256"):
            if measured[key] != recorded[key]:
                message = f"{path} is not what was saved: its {key} is {_abbreviate(measured[key])}"
                raise LoadError(one_line(f"{message}, the manifest says {_abbreviate(recorded[key])}"))
    return len(files)


def _serialize(body: dict[str, Any]) -> bytes:
    seal = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "seal": seal}, indent=1, sort_keys=True) + "\n").encode()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The files of a manifest, after checking its seal and that no name leads out of the folder."""
    try:
        data = read_regular(path, MAX_MANIFEST_BYTES)
        body = json.loads(data)
        body.pop("seal")
        intact, files = _serialize(body) == data, body["files"]
    except OSError as error:
        raise LoadError(one_line(f"{path} cannot be read: {reason(error)}")) from error
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        intact, files = False, None
    if not intact:
        raise LoadError(one_line(f"{path} is not what was saved"))
    if not isinstance(files, dict) or not all(map(_is_entry, files.items())):
        raise LoadError(
            one_line(f"{path} is not a manifest: expected names in this folder, sizes and hashes")
        )
    return files


def _is_entry(item: tuple[Any, Any]) -> bool:
    name, entry = item
    return (
        all(is_bare_name(part) for part in name.split("/"))
        and isinstance(entry, dict)
        and type(entry.get("size")) is int
        and isinstance(entry.get("sha256"), str)
    )


def _abbreviate(value: object) -> str:
    """A size, or the beginning of a hash, for an error message."""
    return quoted(str(value)[:12])


def size_and_hash(path: Path, at_most: int | None = None) -> dict[str, Any]:
    """Size and hash; a file of unexpected size is not read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if at_most is not None and size != at_most:
            return {"size": size, "sha256": None}
        digest, remaining = sha256(), size
        while remaining > 0 and (block := file.read(min(remaining, 2**20))):
            digest.update(block)
            remaining -= len(block)
    return {"size": size - remaining, "sha256": digest.hexdigest()}
