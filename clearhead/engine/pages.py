"""Memory of this process: how much of it is private, and giving back pages of mapped files.

A weight that is mapped from a file occupies memory while it is read, and stays there until the system needs
it. Once it is packed it is not read again, so its pages can go back at once.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from torch import Tensor

MADV_PAGEOUT = 21  # of madvise(2): reclaim these pages; unlike MADV_DONTNEED it loses nothing written


def private_bytes() -> int | None:
    """Bytes of this process that it shares with no file and no other process; None where unknown."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return 1024 * sum(kilobytes)


def give_back_pages(tensors: Iterable[Tensor]) -> None:
    """Let the system reclaim the pages of those tensors that are views of mapped files."""
    if not sys.platform.startswith("linux"):
        return
    files = list(_mapped_files())
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for tensor in tensors:
        start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        if any(low <= start < high for low, high in files):
            first, last = -(-start // mmap.PAGESIZE), end // mmap.PAGESIZE
            if last > first:  # an older kernel refuses: then the pages stay, which harms nothing
                madvise(first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE, MADV_PAGEOUT)


def trim_heap() -> None:
    """Return freed heap memory to the system, where the C library can."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _mapped_files() -> Iterator[tuple[int, int]]:
    """The address ranges that are mapped from safetensors files."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        if line.endswith(".safetensors"):
            low, _, high = line.split()[0].partition("-")
            yield int(low, 16), int(high, 16)
