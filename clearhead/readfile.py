"""Reading untrusted files: a path in, its bytes or its JSON out, without blocking and with a size limit.

A name in a downloaded folder may be a link to anything. Opening a pipe blocks, reading `/dev/zero` never
ends, and `/proc/kmsg` claims to be a regular file of no bytes and then blocks. So a file is opened without
blocking, checked through its descriptor, and read only up to its size.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from .errors import LoadError, quoted, reason

MAX_FILE_BYTES = 64 * 2**20  # bytes; the largest tokenizer.json and index files have about half of that
CONFIG_LIMIT = 4 * 2**20  # bytes of a config; 20,000 label names take one of them
# Values in one JSON file. Parsed, each takes up to a hundred bytes: a small file could fill the memory. The
# index of the largest models has a tenth of this.
MAX_JSON_VALUES = 10**6


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading, or raise an OSError that says why it cannot be."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | Path, limit: int) -> bytes:
    """The bytes of a regular file; an OSError if there are more than the limit."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, expected at most {limit:,}", str(path))
        return file.read(size) if size else b""


def read_file(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """As `read_regular`, with a one-line LoadError for whatever is wrong."""
    try:
        return read_regular(path, limit)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINVAL, errno.ENXIO):  # a link to nothing, a pipe, a device
            raise LoadError(f"{path} is not a file that can be read; expected a regular file") from None
        if error.errno == errno.EFBIG:
            raise LoadError(f"{path} is larger than {limit // 2**20} MB; expected a small file") from None
        raise LoadError(f"{path} cannot be read: {reason(error)}") from error


def parse_json(data: bytes, where: object) -> Any:
    """Parse JSON in UTF-8; `where` names the file in errors."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise LoadError(f"{where} holds more than {MAX_JSON_VALUES:,} values; expected far fewer")
    try:
        return json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        message = f"{where} is not UTF-8 text: {reason(error)}; save it as UTF-8, or download it again"
        raise LoadError(message) from error
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{where} is not valid JSON: {reason(error)}; fix it or download it again") from error


def read_json(path: Path, limit: int = CONFIG_LIMIT) -> Any:
    """The content of a JSON file."""
    return parse_json(read_file(path, limit), path)


def read_object(path: Path, limit: int = CONFIG_LIMIT) -> dict[str, Any]:
    """A JSON file that must hold an object."""
    value = read_json(path, limit)
    if not isinstance(value, dict):
        raise LoadError(f"{path} holds {quoted(value)}; expected an object: {{...}}")
    return value
