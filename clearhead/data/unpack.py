"""Decompression: a .gz or .xz file in, its bytes in a temporary file out; decompression bombs raise an error.

A few hundred kilobytes can unpack to gigabytes. Texts that people wrote become 3 to 20 times as long, logs
that repeat themselves up to some 100 times; gzip can reach 1,000 and xz 7,000. So beyond 64 MB a file may not
be more than 200 times as long as what was read of it, and it may not take more than half of the free disk.
Both are checked while it is unpacked: a rejected file costs about a second and 64 MB of disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import DataError

PACKED = (".gz", ".xz")
MAX_RATIO = 200
UNCHECKED_BYTES = 64 * 2**20  # smaller outputs are not checked for their ratio
XZ_MEMORY = 100 * 2**20  # bytes an xz decoder may use; `xz -9` needs 65 MB
READ, WRITE = 2**16, 2**20


def unpack(packed: BinaryIO, path: Path, name: str) -> int:
    """A descriptor of the unpacked bytes, in a temporary file that is removed when it is closed."""
    parts = _gzip_parts if path.suffix.lower() == ".gz" else _xz_parts
    packed_size = os.fstat(packed.fileno()).st_size
    free = shutil.disk_usage(tempfile.gettempdir()).free
    size = 0
    with tempfile.TemporaryFile() as unpacked:
        for part in parts(packed):
            size += len(part)
            if size > min(UNCHECKED_BYTES, free // 2):
                _check_size(name, size, packed.tell(), packed_size, free)
            unpacked.write(part)
        unpacked.flush()
        return os.dup(unpacked.fileno())


def _check_size(name: str, size: int, read: int, packed_size: int, free: int) -> None:
    ratio = size / max(read, 1)
    advice = "unpack it yourself and give the unpacked file"
    if size > UNCHECKED_BYTES and ratio > MAX_RATIO:
        raise DataError(f"{name} unpacks to more than {MAX_RATIO} times its size, as no text does; {advice}")
    # What is still to come will be packed about as tightly: better to stop now than at the last byte.
    expected = max(size, int(ratio * packed_size))
    if expected > free // 2:
        needs = f"about {expected / 2**30:.1f} GB of disk, and {free / 2**30:.1f} GB are free"
        raise DataError(f"{name} needs {needs} in {tempfile.gettempdir()}; free some space, or {advice}")


def _gzip_parts(packed: BinaryIO) -> Iterator[bytes]:
    """Members one after another. (Python's own reader takes ten seconds for a header of 100 MB.)"""
    data = packed.read(READ)
    while data:
        if data[:2] != b"\x1f\x8b":
            raise OSError("Not a gzipped file")
        decoder = zlib.decompressobj(wbits=31)  # with gzip's header and checksum
        while not decoder.eof:
            part = decoder.decompress(data, WRITE)
            yield part
            data = decoder.unconsumed_tail or packed.read(READ)
            if not data and not part and not decoder.eof:
                raise EOFError("it ends in the middle")
        data = _next_member(decoder.unused_data, data, packed)


def _xz_parts(packed: BinaryIO) -> Iterator[bytes]:
    from lzma import FORMAT_AUTO, LZMADecompressor

    data = packed.read(READ)
    while data:
        decoder = LZMADecompressor(FORMAT_AUTO, memlimit=XZ_MEMORY)
        while not decoder.eof:
            yield decoder.decompress(data, WRITE)
            data = packed.read(READ) if decoder.needs_input and not decoder.eof else b""
            if decoder.needs_input and not data and not decoder.eof:
                raise EOFError("it ends in the middle")
        data = _next_member(decoder.unused_data, data, packed)


def _next_member(unused: bytes, ahead: bytes, packed: BinaryIO) -> bytes:
    """The beginning of the next member, after zero padding that some tools write."""
    data = unused + ahead
    while not (data := data.lstrip(b"\0")):
        if not (data := packed.read(READ)):
            return b""
    return data
