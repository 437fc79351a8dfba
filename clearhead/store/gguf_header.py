"""The header of a GGUF file: bytes in, metadata and the location of every tensor out.

The `gguf` library has a reader too, which trusts the file: an invalid array length makes it loop until memory
is exhausted, and 49,152 tokens take it three seconds. Here every length is checked against the size of the
file before it is used.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LoadError

MAGIC, VERSIONS = b"GGUF", (2, 3)
STRING, ARRAY = 8, 9
# The other types of a value, by number, as `struct` spells them.
NUMBER_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

BlockSize = Callable[[int], tuple[int, int]]  # a tensor type -> values in a block, bytes of a block


@dataclass(frozen=True)
class StoredTensor:
    """Where and how a tensor is stored in the file."""

    kind: int
    shape: tuple[int, ...]  # slowest dimension first, as in torch
    start: int
    size: int  # in bytes


class Metadata(dict[str, Any]):
    """The metadata of a file, with typed access."""

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise LoadError(f"{key} is {_short(value)}, expected a whole number from {least}")
        return value

    def positive_float(self, key: str, default: float | None = None) -> float:
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
            raise LoadError(f"{key} is {_short(value)}, expected a number above zero")
        return float(value)

    def string(self, key: str, default: str | None = None) -> str:
        value = self._required(key, default)
        if not isinstance(value, str):
            raise LoadError(f"{key} is {_short(value)}, expected text")
        return value

    def strings(self, key: str) -> list[str]:
        value = self._required(key, None)
        if not isinstance(value, list):
            raise LoadError(f"{key} is {_short(value)}, expected a list of texts")
        return value

    def number_list(self, key: str, count: int) -> list[float]:
        value = self._required(key, None)
        if not isinstance(value, np.ndarray) or len(value) != count:
            raise LoadError(f"{key} is {_short(value)}, expected a list of {count} numbers")
        numbers: list[float] = value.tolist()
        return numbers

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self._required(key, default)
        if not isinstance(value, bool):
            raise LoadError(f"{key} is {_short(value)}, expected yes or no")
        return value

    def _required(self, key: str, default: object) -> object:
        value = self.get(key, default)
        if value is None:
            raise LoadError(f"it has no value for {key}")
        return value


class Header:
    """Reads the header and keeps the file mapped: tensors are views of it."""

    def __init__(self, path: Path, block_size: BlockSize) -> None:
        self.data = _map_file(path)
        self._at = 0
        if self._read_bytes(4) != MAGIC:
            raise LoadError("this is not a GGUF file: it does not begin with GGUF")
        version = self._read_number("I")
        if version not in VERSIONS:
            big_endian = version & 0xFFFF == 0  # written on a machine of the other byte order
            raise LoadError("it is big-endian" if big_endian else f"GGUF version {version}; known: 2, 3")
        count, keys = self._read_number("Q"), self._read_number("Q")
        self.metadata = Metadata()
        for _ in range(keys):
            self._read_entry()
        self.tensors: dict[str, StoredTensor] = {}
        for _ in range(count):
            self._read_tensor_info(block_size)
        self._locate_tensors()

    def _read_entry(self) -> None:
        key = self._read_string()
        if key in self.metadata:
            raise LoadError(f"{_short(key)} is given twice")
        self.metadata[key] = self._read_value(self._read_number("I"))

    def _read_value(self, kind: int) -> object:
        if kind == STRING:
            return self._read_string()
        if kind == ARRAY:
            inner, count = self._read_number("I"), self._read_number("Q")
            if inner == STRING:
                return [self._read_string() for _ in range(count)]
            if inner in NUMBER_FORMATS:
                dtype = np.dtype(f"<{NUMBER_FORMATS[inner]}")
                return np.frombuffer(self._read_bytes(count * dtype.itemsize), dtype)
            kind = inner
        if kind not in NUMBER_FORMATS:
            raise LoadError(f"a value of unknown type {kind}")
        return self._read_number(NUMBER_FORMATS[kind])

    def _read_tensor_info(self, block_size: BlockSize) -> None:
        name = self._read_string()
        dims = [self._read_number("Q") for _ in range(self._read_rank(name))]
        kind, offset = self._read_number("I"), self._read_number("Q")
        if name in self.tensors:
            raise LoadError(f"tensor {_short(name)} is in it twice")
        values, size = block_size(kind)
        if not all(dims) or dims[0] % values:
            raise LoadError(f"tensor {_short(name)} has the shape {dims[::-1]}, in blocks of {values}")
        self.tensors[name] = StoredTensor(kind, tuple(dims[::-1]), offset, prod(dims) // values * size)

    def _read_rank(self, name: str) -> int:
        count = self._read_number("I")
        if not 1 <= count <= 4:
            raise LoadError(f"tensor {_short(name)} has {count} dimensions, expected 1 to 4")
        return int(count)

    def _locate_tensors(self) -> None:
        """Offsets count from the end of the header; now check them against the file size."""
        alignment = self.metadata.integer("general.alignment", 32, least=8)
        if alignment & (alignment - 1):
            raise LoadError(f"general.alignment is {alignment}, expected a power of two")
        end = base = -(-self._at // alignment) * alignment
        for name, stored in sorted(self.tensors.items(), key=lambda item: item[1].start):
            start = base + stored.start
            # Tensors that share bytes could make a small file ask for any amount of memory.
            if start < end or stored.start % alignment:
                raise LoadError(f"tensor {_short(name)} overlaps another one")
            end = start + stored.size
            if end > len(self.data):
                raise LoadError(
                    f"it is cut off: tensor {_short(name)} ends at byte {end}, the file at {len(self.data)}"
                )
            self.tensors[name] = StoredTensor(stored.kind, stored.shape, start, stored.size)

    def _read_bytes(self, size: int) -> bytes:
        if size > len(self.data) - self._at:
            raise LoadError(f"it is cut off or broken: its header asks for {size} bytes at byte {self._at}")
        self._at += size
        return self.data[self._at - size : self._at]

    def _read_number(self, letter: str) -> Any:
        return struct.unpack(f"<{letter}", self._read_bytes(struct.calcsize(f"<{letter}")))[0]

    def _read_string(self) -> str:
        at = self._at
        try:
            return self._read_bytes(int.from_bytes(self._read_bytes(8), "little")).decode("utf-8")
        except UnicodeDecodeError:
            raise LoadError(f"the text at byte {at} is broken") from None


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            # Private and writable: torch wants memory it may write to, and the file stays as it is.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is empty"
        raise LoadError(f"it cannot be read: {why}") from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
