"""JSON files: a path in, an object out, or one line that says what is wrong with the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import LoadError, quoted
from ..readfile import parse_json, read_file

SMALL = 4 * 2**20  # bytes of a config; 20,000 label names take one of them


def read_json(path: Path, limit: int = SMALL) -> Any:
    """Whatever the file holds."""
    return parse_json(read_file(path, limit), path)


def read_object(path: Path, limit: int = SMALL) -> dict[str, Any]:
    """A file whose outermost thing must be an object with named values."""
    value = read_json(path, limit)
    if not isinstance(value, dict):
        raise LoadError(f"{path} holds {quoted(value)}; expected an object: {{...}}")
    return value
