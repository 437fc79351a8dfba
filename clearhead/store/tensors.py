"""Tensors on disk: safetensors files in; a lazy, memory-mapped mapping of tensors out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Protocol, cast

import torch
from safetensors import safe_open
from torch import Tensor

from ..errors import LoadError, one_line, quoted, reason

MAX_TENSORS = 200_000  # of one file; the largest models have half as many in all
# Supported types. The format has more (four and six bits, scales alone); any other is an error.
DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip


class _Slice(Protocol):
    def get_shape(self) -> list[int]: ...
    def get_dtype(self) -> str: ...


class _File(Protocol):
    """The part of safetensors' class that is used here; it has no type annotations."""

    def keys(self) -> list[str]: ...
    def get_slice(self, name: str) -> _Slice: ...
    def get_tensor(self, name: str) -> Tensor: ...


@dataclass(frozen=True)
class FileVersion:
    """A file, and what tells whether it is still the same one."""

    path: Path
    size: int
    mtime_ns: int

    @staticmethod
    def of(path: Path) -> FileVersion:
        found = os.stat(path)
        return FileVersion(path, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class _Entry:
    path: Path
    file: _File
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class Tensors(Mapping[str, Tensor]):
    """Every tensor of a folder by name; names, shapes and dtypes come from the headers alone.

    A tensor is a view of the mapped file: nothing is copied, and every access returns the same memory.
    Writing into one changes that memory, never the file.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._entries: dict[str, _Entry] = {}
        self.files = tuple(map(FileVersion.of, paths))  # as they were just before they were opened
        for path in paths:
            for name, entry in _headers(path).items():
                if name in self._entries:
                    first = self._entries[name].path.name
                    message = f"{path.parent} holds {quoted(name)} twice: in {first} and {path.name}"
                    raise LoadError(one_line(f"{message}; each tensor belongs in one file"))
                self._entries[name] = entry

    def __getitem__(self, name: str) -> Tensor:
        entry = self._entries[name]
        try:
            return entry.file.get_tensor(name)
        except Exception as error:  # whatever the library raises, the file is at fault; name it
            raise LoadError(
                one_line(f"{quoted(name)} cannot be read from {entry.path}: {reason(error)}")
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def dtype(self, name: str) -> torch.dtype:
        return self._entries[name].dtype

    def file(self, name: str) -> Path:
        """The file a tensor is in."""
        return self._entries[name].path

    @property
    def bytes(self) -> int:
        """The bytes of all tensors, on disk and in memory."""
        return sum(entry.bytes for entry in self._entries.values())


def _headers(path: Path) -> dict[str, _Entry]:
    try:
        file = cast(_File, safe_open(path, framework="pt"))
        names = file.keys()
        if len(names) > MAX_TENSORS:
            raise LoadError(f"{path} holds {len(names):,} tensors; no model has more than {MAX_TENSORS:,}")
        slices = {name: file.get_slice(name) for name in names}
        headers = {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    except LoadError:
        raise
    except Exception as error:
        message = f"{path} is not a whole safetensors file: {reason(error)}; copy or download it again"
        raise LoadError(one_line(message)) from error
    return {name: _entry(path, file, name, shape, dtype) for name, (shape, dtype) in headers.items()}


def _entry(path: Path, file: _File, name: str, shape: tuple[int, ...], dtype: str) -> _Entry:
    if dtype not in DTYPES:
        message = f"{quoted(name)} in {path} has dtype {dtype}; read here: {', '.join(DTYPES)}"
        raise LoadError(one_line(f"{message}; save the model in one of these"))
    # The library checks shapes against the bytes stored, but an empty tensor may claim any shape at all.
    if len(shape) > 64 or prod(max(size, 1) for size in shape) >= 2**60:
        message = f"{quoted(name)} in {path} has the shape {quoted(list(shape))}, which no tensor can have"
        raise LoadError(one_line(f"{message}; copy or download the file again"))
    return _Entry(path, file, shape, DTYPES[dtype])
