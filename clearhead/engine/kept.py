"""Kept weights: the quantized weights of a model in, a safetensors file out; and the reading of it.

Quantizing a model takes longer than reading it. A file keeps the result: whole numbers and scales in the
order of the matrix, not the layout of one machine. `int8` serves the precisions int8 and int8-fine, which
differ in how inputs are rounded only.

    NAME:scale  NAME:codes              int8: one scale per row, one byte per weight
    NAME:scale  NAME:zero  NAME:codes   int4: one scale and zero point per group, two weights per byte

The file of an int4 model also has its vocabulary, in int8.

NAME is that of the parameter, or several joined by commas: they are one product, one below the other. The
header's metadata say which files the weights came from, and hold a checksum of every tensor. A file that is
not as it was written is not used: shapes, checksums and scales are checked, and of every matrix one row,
chosen at random, is compared with the weights themselves.
Shape suffixes: O outputs, I inputs, G groups per row.
"""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from .int4 import GROUP_SIZE, MAX_CODE, Int4Weights, dequantize
from .int8 import Int8Weights, quantize_rows

QuantizedWeights = Int8Weights | Int4Weights
KeptKind = Literal["int8", "int4"]
Parts = dict[str, tuple[torch.dtype, tuple[int, ...]]]  # the tensors of a matrix

KEPT_FORMAT = 1  # another number is not read: raised whenever weights are quantized in another way
METADATA = "clearhead"  # key of the header's metadata
MAX_METADATA = 2**24  # characters
SAFETENSORS_NAMES = {torch.int8: "I8", torch.uint8: "U8", torch.float32: "F32", torch.bfloat16: "BF16"}
ROW_ERROR = 0.5  # of an int4 row, relative: a row of other weights is off by 1.4


class KeptError(Exception):
    """A kept file cannot be used; the message says why."""


@dataclass(frozen=True)
class QuantizedMatrix:
    """Weights that become one matrix, one below the other, and how it is quantized."""

    kind: KeptKind
    weights: Sequence[Tensor]

    @property
    def shape(self) -> tuple[int, int]:
        return sum(map(len, self.weights)), self.weights[0].shape[1]


class KeptWeights(Protocol):
    """Quantized weights of earlier, and where to put those that are not among them."""

    def __contains__(self, name: object) -> bool: ...

    def read(self, name: str, matrix: QuantizedMatrix) -> QuantizedWeights | None:
        """What was kept of these weights; None if nothing was."""

    def add(self, name: str, quantized: QuantizedWeights) -> None:
        """Called for every matrix, whether it was read or quantized."""


@dataclass(frozen=True)
class SourceFile:
    """A file that weights came from, as it was when they were quantized."""

    name: str
    size: int
    mtime_ns: int
    sha256: str


class KeptReader:
    """An opened file. Raises `KeptError` for whatever is wrong with it."""

    def __init__(self, path: Path, kind: KeptKind) -> None:
        try:
            self._file: Any = _open(path)
            found = json.loads((self._file.metadata() or {})[METADATA][:MAX_METADATA])
            wanted = {"format": KEPT_FORMAT, "kind": kind}
            if {key: found[key] for key in wanted} != wanted:
                raise KeptError(
                    f"it is {found['kind']} in format {found['format']}, expected {kind} in {KEPT_FORMAT}"
                )
            self.sources = [SourceFile(**source) for source in found["sources"]]
            self._sums: dict[str, str] = dict(found["checksums"])
            self._names = set(self._file.keys())
        except KeptError:
            raise
        except Exception as error:  # the library's own errors, and whatever a strange header leads to
            raise KeptError(f"it is damaged ({_first_line(error)})") from error

    def __contains__(self, name: str) -> bool:
        return f"{name}:codes" in self._names

    def read(self, name: str, matrix: QuantizedMatrix) -> QuantizedWeights:
        """The quantized form of these weights."""
        tensors = {part: self._tensor(name, part, *form) for part, form in _parts(matrix).items()}
        quantized = _from_tensors(tensors, matrix.shape[1])
        _check_row(name, quantized, matrix.weights)
        return quantized

    def _tensor(self, name: str, part: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        key = f"{name}:{part}"
        try:
            found = self._file.get_slice(key)
            given = found.get_dtype(), tuple(found.get_shape())
            if given != (SAFETENSORS_NAMES[dtype], shape):
                raise KeptError(f"{key} is {given}, the model needs {(SAFETENSORS_NAMES[dtype], shape)}")
            tensor: Tensor = self._file.get_tensor(key)
            intact = self._sums[key] == _checksum(tensor)
        except KeptError:
            raise
        except Exception as error:
            raise KeptError(f"it is damaged ({_first_line(error)})") from error
        if not intact:
            raise KeptError(f"{key} is not what was written")
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise KeptError(f"{key} has numbers that are not finite")
        return tensor


def _remove_leftovers(path: Path) -> None:
    """Remove what a writer left that was killed; its name ends with the number of its process."""
    for staging in path.parent.glob(f".tmp-{path.name}-*"):
        process = staging.name.rpartition("-")[2]
        if process.isdecimal() and not _is_running(int(process)):
            with suppress(OSError):
                staging.unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True


class KeptWriter:
    """Writes a file matrix by matrix, in any order; it appears under its name when all are there.

    Used as a context: left by an error, or before all matrices are written, nothing remains.
    """

    def __init__(
        self,
        path: Path,
        kind: KeptKind,
        matrices: Mapping[str, QuantizedMatrix],
        sources: Sequence[SourceFile],
    ) -> None:
        self._path, self._kind, self._sources = path, kind, list(sources)
        self._entries = dict(_entries(matrices))
        self._sums = dict.fromkeys(self._entries, "00000000")  # of the length they will have
        self._missing = set(self._entries)
        self._start = len(self._header())
        self._staging = path.with_name(f".tmp-{path.name}-{os.getpid()}")
        path.parent.mkdir(exist_ok=True)
        _remove_leftovers(path)
        self._file = self._staging.open("wb")

    def write(self, name: str, quantized: QuantizedWeights) -> None:
        for part, tensor in _tensors(quantized).items():
            key = f"{name}:{part}"
            entry = self._entries[key]
            assert tuple(tensor.shape) == tuple(entry["shape"])
            self._file.seek(self._start + entry["data_offsets"][0])
            self._file.write(_bytes(tensor))
            self._sums[key] = _checksum(tensor)
            self._missing.discard(key)

    def finish(self) -> None:
        """Write the header and move the file to its place."""
        assert not self._missing, f"not written: {sorted(self._missing)[:3]}"
        self._file.seek(0)
        self._file.write(self._header())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._staging, self._path)

    def __enter__(self) -> KeptWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # a full disk says so once more
            self._file.close()
        with suppress(OSError):
            self._staging.unlink()

    def _header(self) -> bytes:
        metadata = {
            "format": KEPT_FORMAT,
            "kind": self._kind,
            "sources": [asdict(source) for source in self._sources],
            "checksums": self._sums,
        }
        text = json.dumps({"__metadata__": {METADATA: json.dumps(metadata)}, **self._entries}).encode()
        text += b" " * (-len(text) % 8)  # tensors begin at multiples of 8 bytes, as safetensors writes them
        return struct.pack("<Q", len(text)) + text


def _open(path: Path) -> Any:  # the library has no type annotations
    return safe_open(path, framework="pt")


def _parts(matrix: QuantizedMatrix) -> Parts:
    outputs, inputs = matrix.shape
    if matrix.kind == "int8":
        return {"scale": (torch.float32, (outputs,)), "codes": (torch.int8, (outputs, inputs))}
    groups = -(-inputs // GROUP_SIZE)
    steps = torch.bfloat16, (outputs, groups)
    return {"scale": steps, "zero": steps, "codes": (torch.uint8, (outputs, -(-inputs // 2)))}


def _entries(matrices: Mapping[str, QuantizedMatrix]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The header's entries. Scales come before all codes, so that no tensor begins at an odd address."""
    tensors = {
        f"{name}:{part}": form for name, matrix in matrices.items() for part, form in _parts(matrix).items()
    }
    start = 0
    for key in sorted(tensors, key=lambda key: -tensors[key][0].itemsize):
        dtype, shape = tensors[key]
        end = start + dtype.itemsize * prod(shape)
        yield key, {"dtype": SAFETENSORS_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        start = end


def _tensors(quantized: QuantizedWeights) -> dict[str, Tensor]:
    if isinstance(quantized, Int8Weights):
        return {"scale": quantized.scale_O, "codes": quantized.codes_OI}
    codes_OI = quantized.codes_OI
    if codes_OI.shape[1] % 2:
        codes_OI = F.pad(codes_OI, (0, 1))
    both = codes_OI[:, ::2] | codes_OI[:, 1::2] << 4
    return {"scale": quantized.scale_OG, "zero": quantized.zero_OG, "codes": both}


def _from_tensors(tensors: Mapping[str, Tensor], inputs: int) -> QuantizedWeights:
    codes, scale = tensors["codes"], tensors["scale"]
    if "zero" not in tensors:
        return Int8Weights(codes, scale)
    codes_OI = torch.stack((codes & MAX_CODE, codes >> 4), dim=-1).flatten(1)[:, :inputs]
    return Int4Weights(codes_OI.contiguous(), scale, tensors["zero"])


def _check_row(name: str, quantized: QuantizedWeights, weights: Sequence[Tensor]) -> None:
    """Compare one row, chosen at random, with the weights: a file may be intact and of another model."""
    row = random.SystemRandom().randrange(len(quantized.codes_OI))
    here, wanted = slice(row, row + 1), _row(weights, row)
    if isinstance(quantized, Int8Weights):
        fresh = quantize_rows(wanted)
        same = torch.equal(fresh.codes_OI, quantized.codes_OI[here])
        same = same and torch.equal(fresh.scale_O, quantized.scale_O[here])
    else:
        steps = quantized.scale_OG[here], quantized.zero_OG[here]
        found = dequantize(Int4Weights(quantized.codes_OI[here], *steps))
        same = bool((found - wanted).norm() <= ROW_ERROR * wanted.float().norm())
    if not same:
        raise KeptError(f"{name} is of other weights")


def _row(weights: Sequence[Tensor], row: int) -> Tensor:
    """A row, (1, I), of matrices one below the other."""
    for weight in weights:
        if row < len(weight):
            break
        row -= len(weight)
    return weight.detach()[row : row + 1]


def _bytes(tensor: Tensor) -> Any:
    return tensor.contiguous().flatten().view(torch.uint8).numpy()


def _checksum(tensor: Tensor) -> str:
    return f"{zlib.crc32(_bytes(tensor)):08x}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:100]
