"""Regular files: a path in, its bytes out; a pipe, a device or a file that never ends is refused at once.

A name in somebody's folder may be a link to anything. Opening a pipe waits for a writer, reading `/dev/zero`
has no end, and `/proc/kmsg` calls itself a regular file of no bytes and then waits. So a file is opened
without waiting, looked at through its descriptor, and read only as far as its size says.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: str | Path) -> BinaryIO:
    """The file opened for reading, or an OSError that says why it cannot be."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | Path, limit: int) -> bytes:
    """As many bytes as the file has, none of them if these are more than the limit."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, expected at most {limit:,}", str(path))
        return file.read(size) if size else b""
