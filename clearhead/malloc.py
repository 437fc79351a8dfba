"""glibc's allocator: keep freed memory in the process. And how much memory the system has left.

glibc returns blocks of 32 MB and more to the system as soon as they are freed; the next allocation gets new
pages, each zeroed by the kernel. A network allocates and frees such blocks at every step: adding one to 128
MB of numbers takes three times as long as it should. With trimming disabled, freed memory is reused. The
price: the process never returns memory before it ends.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

# Parameters of mallopt(3), with the values of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def disable_trim() -> bool:
    """Whether the allocator accepted it. The setting is per process; a second call changes nothing."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    # No block in a mapping of its own, and a threshold of -1: the top of the heap is never trimmed.
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))


def available_memory() -> int | None:
    """Bytes available without swapping; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError, IndexError):
        return None
