"""Reading a small file that somebody else wrote: a path in, its bytes or its JSON out, in bounds.

A name in a model's folder may be a link to anything. A pipe, a device or a file of the kernel can block for
ever or never end, so files are opened without blocking, must be regular, and are read up to a limit.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from .errors import LoadError, reason

LIMIT = 64 * 2**20  # bytes; the largest tokenizer.json and index files have about half of that
# Values in one JSON file. Parsed, each takes up to a hundred bytes: a small file could fill the memory. The
# index of the largest models has a tenth of this.
MOST_VALUES = 10**6
NON_BLOCKING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_file(path: Path, limit: int = LIMIT) -> bytes:
    """All bytes of a regular file; whatever else it is, or more than `limit` bytes, is refused in a line."""
    try:
        descriptor = os.open(path, os.O_RDONLY | NON_BLOCKING)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LoadError(f"{path} is not a file that can be read; expected a regular file")
            data = _read(descriptor, limit + 1)
        finally:
            os.close(descriptor)
    except BlockingIOError:
        raise LoadError(f"{path} is not a file that can be read; reading it would wait for ever") from None
    except FileNotFoundError:  # a link to nothing
        raise LoadError(f"{path} is not a file that can be read; expected a regular file") from None
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {reason(error)}") from error
    if len(data) > limit:
        raise LoadError(f"{path} is larger than {limit // 2**20} MB; expected a small file")
    return data


def _read(descriptor: int, most: int) -> bytes:
    parts, left = [], most
    while left > 0 and (part := os.read(descriptor, min(left, 2**20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def parse_json(data: bytes, where: object) -> Any:
    """JSON in UTF-8; `where` is the file it stood in, for the error."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise LoadError(f"{where} holds more than {MOST_VALUES:,} values; expected far fewer")
    try:
        return json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        message = f"{where} is not UTF-8 text: {reason(error)}; save it as UTF-8, or fetch it again"
        raise LoadError(message) from error
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{where} is not valid JSON: {reason(error)}; mend it, or fetch it again") from error
