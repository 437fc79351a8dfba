"""Data files: a path in; random access to its bytes, its lines checked as UTF-8, and its hash out.

Only line offsets are kept in memory. Compressed files are unpacked once into a temporary file that is
removed with its last reader.
"""

from __future__ import annotations

import hashlib
import os
import sys
import weakref
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO

from ..errors import DataError, InputError
from ..readfile import open_regular
from .unpack import PACKED, unpack

MAX_LINE_BYTES = 64 * 2**20  # longer lines mean that line breaks are missing
BOM = b"\xef\xbb\xbf"
COMMON_CHINESE = frozenset(
    "的一是不了人我在有他这這中大来來上国國个個到说說们們为為子和你地出道也时時年得就那要下以生会會"
)


class File:
    """One file of a source. `name` is what the user typed, for messages and for the record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = _printable(str(path))
        try:
            if not path.is_file():  # a pipe or a device: opening one may wait forever
                raise InputError(f"{self.name} is not a file that can be read")
            self._handle = self._open()
        except (OSError, EOFError, zlib.error, _lzma_error()) as error:
            why = _printable(" ".join(str(error).split()))
            raise DataError(f"{self.name} cannot be read: {why}; download or create it again") from None
        weakref.finalize(self, os.close, self._handle)
        self.size = os.fstat(self._handle).st_size
        if self.size == 0:
            raise DataError(f"{self.name} is empty; expected at least one row")
        self.start = len(BOM) if self.read(0, len(BOM)) == BOM else 0

    @property
    def encoding(self) -> str:
        return "utf-8 with BOM" if self.start else "utf-8"

    @cached_property
    def sha256(self) -> str:
        """Of the file on disk, compressed or not."""
        digest = hashlib.sha256()
        with open_regular(self.path) as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
        return digest.hexdigest()

    def read(self, start: int, end: int) -> bytes:
        if sys.platform == "win32":
            with os.fdopen(os.dup(self._handle), "rb") as file:
                file.seek(start)
                return file.read(end - start)
        return os.pread(self._handle, end - start, start)  # no shared position: threads and forks are safe

    def handle(self) -> IO[bytes]:
        """The unpacked bytes as a file object, for libraries that need one."""
        file = os.fdopen(os.dup(self._handle), "rb")
        file.seek(0)
        return file

    def lines(self) -> Iterator[tuple[int, str]]:
        """The offset of each line and its text without the line break, checked one after another."""
        start, number = self.start, 0
        with self.handle() as file:
            file.seek(start)
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    limit = f"longer than {MAX_LINE_BYTES // 2**20} MB"
                    raise DataError(f"{self.name} line {number} is {limit}; expected one row per line")
                yield start, self.text(line, number)
                start += len(line)

    def text(self, line: bytes, number: int) -> str:
        """Decode one line; errors name the line and the byte."""
        if 0 in line:
            what = _guess_encoding(line, self.read(0, 4)) or "a binary file"
            at = line.index(0) + 1
            raise DataError(
                f"{self.name} line {number} has a NUL byte (byte {at}); expected UTF-8 text; is it {what}?"
            )
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            at = error.start
            sample = line
            if len(line) <= 2**16:  # one line is too little to guess an encoding from: add the first ones
                head = self.read(0, 2**16)
                sample += head[: head.rfind(b"\n") + 1]
            likely = _guess_encoding(sample, self.read(0, 4)) or "latin-1"
            raise DataError(
                f"{self.name} line {number} is not UTF-8: byte {at + 1} of the line is 0x{line[at]:02X}; "
                f"it looks like {likely}: iconv -f {likely} -t utf-8 {self.path.name} > utf8-{self.path.name}"
            ) from None
        return text.rstrip("\r\n")

    def _open(self) -> int:
        """A descriptor of the bytes. A file of size 0 is not read: in /proc such a file may never end."""
        with open_regular(self.path) as file:
            if self.path.suffix.lower() in PACKED and os.fstat(file.fileno()).st_size:
                return unpack(file, self.path, self.name)
            return os.dup(file.fileno())


def _lzma_error() -> type[Exception]:
    """Some builds of Python have no lzma; .gz must still work there."""
    try:
        from lzma import LZMAError
    except ImportError:
        return EOFError
    return LZMAError


def _guess_encoding(sample: bytes, head: bytes) -> str | None:
    """The most likely encoding of bytes that are not UTF-8, by their share of common Chinese characters."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    scores = {}
    for encoding in ("gb18030", "big5"):
        text = sample.decode(encoding, "ignore")
        non_ascii = [letter for letter in text if ord(letter) > 127]
        if non_ascii:
            scores[encoding] = sum(letter in COMMON_CHINESE for letter in non_ascii) / len(non_ascii)
    best = max(scores, key=lambda encoding: scores[encoding], default=None)
    return best if best is not None and scores[best] > 0.05 else None


def _printable(text: str) -> str:
    """A file name without control characters, safe to print in one line."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
