"""Random damage: two thousand folders with one file spoiled. Each reads, or is refused in one line."""

import json
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import INDEX, SHARDS, SINGLE, one_file, two_files

from clearhead import store
from clearhead.errors import LoadError

ODD = [
    b"",
    b"0",
    b"-1",
    b"null",
    b"[]",
    b"{}",
    b'"F32"',
    b"99999999999999999999",
    b"1e400",
    b'"\\ud800"',
    b"../x",
]


def flip(data: bytes, draw: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 4, 16])):
        spoiled[draw.randrange(len(spoiled))] ^= 1 << draw.randrange(8)
    return bytes(spoiled)


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def swap(data: bytes, draw: random.Random) -> bytes:
    """Put something odd in the place of a stretch of the text; in the front half, where headers are."""
    start = draw.randrange(len(data) // 2 + 1)
    return data[:start] + draw.choice(ODD) + data[start + draw.randrange(12) :]


def lengthen(data: bytes, draw: random.Random) -> bytes:
    return data + draw.randbytes(draw.randrange(1, 40))


def header(data: bytes, draw: random.Random) -> bytes:
    """Edit the header of a safetensors file and keep its length honest; an object of any other file."""
    weights = data[:1] != b"{"
    stop = 8 + struct.unpack("<Q", data[:8])[0] if weights else len(data)
    fields = json.loads(data[8:stop] if weights else data)
    where = draw.choice([value for value in fields.values() if isinstance(value, dict)] or [fields])
    value = draw.choice(
        [None, -1, 2**64, [], {}, [0, 2**70], [-1, 3], "F4", "F64", "\n", "..", "BF16", [2, 2]]
    )
    where[draw.choice([*where, "data_offsets", "shape", "dtype", "new"])] = value
    text = json.dumps(fields).encode()
    return struct.pack("<Q", len(text)) + text + data[stop:] if weights else text


SPOIL: list[Callable[[bytes, random.Random], bytes]] = [flip, cut, swap, lengthen, header]
PLACES = [
    (one_file, SINGLE),
    (one_file, "config.json"),
    (two_files, INDEX),
    (two_files, SHARDS[0]),
    (two_files, SHARDS[1]),
]


@pytest.mark.parametrize(("make", "name"), PLACES, ids=[name for _, name in PLACES])
def test_spoiled_files_read_or_are_refused(tmp_path: Path, make, name: str) -> None:
    draw = random.Random(name)
    folder = make(tmp_path / "model")
    whole = (folder / name).read_bytes()
    refused, slowest = 0, 0.0
    for round_ in range(400):
        spoil = SPOIL[round_ % len(SPOIL)]
        # A new file each time: the pages of one that is mapped must not be pulled from under a tensor.
        (folder / name).unlink()
        (folder / name).write_bytes(spoil(whole, draw))
        start = time.process_time()
        try:
            found = store.read_folder(folder)
            for tensor in found.tensors:
                assert found.tensors[tensor].shape == found.tensors.shape(tensor)
                assert found.tensors[tensor].dtype == found.tensors.dtype(tensor)
                found.tensors[tensor].clone()
        except LoadError as error:
            refused += 1
            assert str(error).isprintable(), repr(str(error))
            assert len(str(error)) < 700
        slowest = max(slowest, time.process_time() - start)
    assert 40 < refused < 400  # some damage must show, some cannot
    assert slowest < 2
