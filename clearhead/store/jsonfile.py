"""JSON files: a path in, an object out, or one line that says what is wrong with the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import LoadError
from .line import one_line, quoted, reason

LIMIT = 64 * 2**20  # bytes; the index of the largest models has about ten million


def read_json(path: Path) -> Any:
    """Whatever the file holds. Pipes and devices are refused: opening one may wait forever."""
    if not os.path.isfile(path):
        raise LoadError(one_line(f"{path} is not a file that can be read; expected JSON"))
    with path.open("rb") as file:
        data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise LoadError(one_line(f"{path} is larger than {LIMIT // 2**20} MB; expected a small JSON file"))
    try:
        return json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 text: {reason(error)}; save it as UTF-8, or fetch it again"
        raise LoadError(one_line(message)) from error
    except (ValueError, RecursionError) as error:
        message = f"{path} is not valid JSON: {reason(error)}; mend it, or fetch it again"
        raise LoadError(one_line(message)) from error


def read_object(path: Path) -> dict[str, Any]:
    """A file whose outermost thing must be an object with named values."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise LoadError(one_line(f"{path} holds {quoted(value)}; expected an object: {{...}}"))
    return value
