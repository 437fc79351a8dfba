"""The memory of this process: how much there is left, and a heap made to keep what it has.

Linux's allocator gives blocks of 32 MB and more back to the system as soon as they are freed, and the next
one comes anew, page by page, each page zeroed. A network makes and frees such blocks at every step: adding
one to 128 MB of numbers takes three times as long as it should. Where memory is kept, it is only reused. The
price: what a process once needed it holds until it ends.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

TRIM, MMAPS = -1, -4  # of mallopt(3): from how many free bytes on memory goes back; how many blocks alone
NEVER = -1


def keep_memory() -> bool:
    """Whether the allocator could be told. It is told once for the process; a second call changes nothing."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(tell(MMAPS, 0)) and bool(tell(TRIM, NEVER))


def free_memory() -> int | None:
    """Bytes that can be had without taking them from others; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError, IndexError):
        return None
