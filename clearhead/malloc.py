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
CGROUP = Path("/sys/fs/cgroup")


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
    """Bytes this process can still get without swapping; None where the system does not say."""
    limits = (_system_memory(), _container_memory(), _address_space())
    return min((limit for limit in limits if limit is not None), default=None)


def _system_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError, IndexError):
        return None


def _container_memory() -> int | None:
    """Bytes below the limit of a container (cgroup v2); its file cache can be dropped."""
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return max(limit - used + int(stat.get("inactive_file", 0)), 0)
    except (OSError, ValueError):  # no container, or "max": no limit
        return None


def _address_space() -> int | None:
    """Bytes below the limit that `ulimit -v` sets."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        return max(limit - used, 0)
    except (ImportError, OSError, ValueError, IndexError):  # Windows has neither
        return None
