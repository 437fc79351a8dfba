"""Memory of this process: how much of it is private, giving back pages of mapped files, who wrote to them.

A weight that is mapped from a file occupies memory while it is read, and stays there until the system needs
it. Once it is packed it is not read again, so its pages can go back at once.

A page that is written to becomes a private copy; the file does not change. Linux tells which pages are such
copies, and thereby whether a mapped weight is what its file holds, in whatever way it may have been written
to, and without reading it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

# Of madvise(2): pages are read again from the file when they are needed, and what was written is lost; or
# they are reclaimed like those of a process that has not used them for long, and nothing is lost.
MADV_DONTNEED, MADV_PAGEOUT = 4, 21
# A private mapping of a file in /proc/self/maps: addresses, permissions, offset, device, inode, path.
MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ...p \S+ \S+ [1-9]\d* +/", re.MULTILINE)
# The top three bits of an entry of /proc/self/pagemap: the page is in memory; it was swapped out; it is the
# file's own. Those are copies that are in memory and not the file's, and all that were swapped out.
FLAGS_SHIFT, IN_MEMORY, SWAPPED, OF_FILE = np.uint64(61), 4, 2, 1
IS_COPY = np.array([bool(flags & SWAPPED) or flags == IN_MEMORY for flags in range(8)])


@dataclass(frozen=True)
class AddressRange:
    """Addresses from `start` up to, not including, `end`."""

    start: int
    end: int

    @staticmethod
    def of(tensor: Tensor) -> AddressRange:
        """From the first number of a tensor to its last, whatever its strides are."""
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = sum((size - 1) * stride for size, stride in steps) if tensor.numel() else -1
        return AddressRange(tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size())

    def __contains__(self, other: AddressRange) -> bool:
        return self.start <= other.start and other.end <= self.end


def private_bytes() -> int | None:
    """Bytes of this process that it shares with no file and no other process; None where unknown."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")]
    return 1024 * sum(kilobytes)


def mapped_files() -> list[AddressRange]:
    """Where files are mapped, for reading or privately; nothing on systems that do not tell."""
    try:
        text = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return []
    return [AddressRange(int(match[1], 16), int(match[2], 16)) for match in MAPPING.finditer(text)]


def are_written(ranges: Sequence[AddressRange]) -> list[bool]:
    """Whether any page of each range of a mapped file was written to; yes on systems that do not tell."""
    try:
        descriptor = os.open("/proc/self/pagemap", os.O_RDONLY)
    except OSError:
        return [True] * len(ranges)
    try:
        return [_has_copies(descriptor, each) for each in ranges]
    except OSError:
        return [True] * len(ranges)
    finally:
        os.close(descriptor)


def _has_copies(pagemap: int, where: AddressRange) -> bool:
    first, last = where.start // mmap.PAGESIZE, -(-where.end // mmap.PAGESIZE)
    entries = np.frombuffer(os.pread(pagemap, 8 * (last - first), 8 * first), np.uint64)
    if len(entries) < last - first:
        return True
    return bool(IS_COPY[entries >> FLAGS_SHIFT].any())


def files_of(tensors: Iterable[Tensor]) -> list[AddressRange]:
    """Where those files are mapped that any of these tensors is a view of."""
    ranges = [AddressRange.of(tensor) for tensor in tensors]
    return [file for file in mapped_files() if any(each in file for each in ranges)]


def are_as_in_file(tensors: Sequence[Tensor]) -> list[bool]:
    """Whether each tensor is a view of a mapped file, and nothing was written to it."""
    files, ranges = mapped_files(), [AddressRange.of(tensor) for tensor in tensors]
    mapped = [any(each in file for file in files) for each in ranges]
    written = iter(are_written([each for each, inside in zip(ranges, mapped, strict=True) if inside]))
    return [inside and not next(written) for inside in mapped]


def give_back_pages(tensors: Iterable[Tensor]) -> None:
    """Let the system reclaim the pages of the mapped files that these tensors are views of."""
    files = files_of(tensors)
    if not files:
        return
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for file, written in zip(files, are_written(files), strict=True):
        # MADV_PAGEOUT needs a file that is ours, and an older kernel does not know it: then the pages stay,
        # which harms nothing.
        madvise(file.start, file.end - file.start, MADV_PAGEOUT if written else MADV_DONTNEED)


def trim_heap() -> None:
    """Return freed heap memory to the system, where the C library can."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
