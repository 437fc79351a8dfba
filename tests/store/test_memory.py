"""Memory: weights are mapped, not copied; names and shapes come without touching the data."""

import sys
from pathlib import Path

import pytest
import torch
from checkpoints import SINGLE
from safetensors.torch import save_file

from clearhead import store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts pages in /proc, which Linux has")
SIZE = 60 * 10**6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    save_file({f"layer.{i}": torch.full((1000, 1000), float(i)) for i in range(15)}, tmp_path / SINGLE)
    assert (tmp_path / SINGLE).stat().st_size > SIZE
    return tmp_path


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def mapped(file: Path) -> tuple[dict[str, int], list[range]]:
    """What the kernel says about the mappings of a file: bytes of each kind, and the addresses."""
    total, places, inside = {"Rss": 0, "Anonymous": 0}, [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *values = line.split()
        if not key.endswith(":"):
            inside = line.endswith(str(file))
            if inside:
                start, stop = (int(address, 16) for address in key.split("-"))
                places.append(range(start, stop))
        elif inside and key[:-1] in total:
            total[key[:-1]] += int(values[0]) * 1024
    return total, places


def test_names_and_shapes_read_no_data(folder: Path) -> None:
    before = resident()
    found = store.read_folder(folder)
    assert [found.tensors.shape(name) for name in found.tensors] == [(1000, 1000)] * 15
    assert all(found.tensors.dtype(name) == torch.float32 for name in found.tensors)
    assert found.tensors.bytes == SIZE
    assert resident() - before < 0.2 * SIZE
    assert mapped(folder / SINGLE)[0]["Rss"] < 256 * 1024  # the header and what the kernel read ahead


def test_tensors_are_windows_on_the_file(folder: Path) -> None:
    before = resident()
    found = store.read_folder(folder).tensors
    held = {name: found[name] for name in found}
    assert resident() - before < 0.2 * SIZE
    places = mapped(folder / SINGLE)[1]
    assert all(any(x.data_ptr() in place for place in places) for x in held.values())
    assert found["layer.3"].data_ptr() == held["layer.3"].data_ptr()
    assert [float(x.mean()) for x in held.values()] == [float(name.split(".")[1]) for name in held]
    kinds = mapped(folder / SINGLE)[0]
    assert kinds["Rss"] > 0.9 * SIZE  # read by now, from the file itself
    assert kinds["Anonymous"] == 0  # and not one page of it copied
