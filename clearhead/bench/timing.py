"""Timing and memory: several implementations of the same work in; their speeds out.

Each implementation runs once to warm up; then all take turns, round by round, so that other load on the
machine affects them alike. The result is the median of the rounds.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ..device import available_threads, check_threads
from ..errors import InputError

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise torch.profiler writes to stderr
TimedCall = Callable[[], int]
"""Does the work once and returns its amount: tokens or sentences."""
ProgressCallback = Callable[[str], None]


def measure_in_turns(
    sides: Mapping[str, TimedCall],
    rounds: int,
    progress: ProgressCallback,
    clock: Callable[[], float] = time.perf_counter,
    pause: float = 0.0,
) -> dict[str, float]:
    """Units of work per second, by name; with `pause` seconds of rest before each turn."""
    if rounds < 1:
        raise InputError(f"rounds is {rounds}, expected 1 or more")
    for name, work in sides.items():
        progress(f"warming up: {name}")
        work()
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(1, rounds + 1):
        for name, work in sides.items():
            progress(f"round {turn} of {rounds}: {name}")
            time.sleep(pause)
            start = clock()
            amount = work()
            speeds[name].append(amount / (clock() - start))
    return {name: median(values) for name, values in speeds.items()}


def fair_clock() -> Callable[[], float]:
    """Process time with one thread, which excludes other load of the machine; else wall-clock time."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def set_threads(count: int | None) -> int:
    """Set torch's threads to `count`, or to all cores this process may use; returns the number."""
    threads = available_threads() if count is None else check_threads(count)
    torch.set_num_threads(threads)
    return threads


def installed(packages: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The versions of the packages that are installed, and the names of those that are not."""
    found = [name for name in packages if find_spec(name.replace("-", "_"))]
    return {name: metadata.version(name) for name in found}, [name for name in packages if name not in found]


def describe_machine(cores: int, peers: Mapping[str, str]) -> str:
    """One line to print beside the figures: processor, threads, versions."""
    versions = {"torch": torch.__version__, **peers}
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{_processor()}, {cores} thread{'s' if cores > 1 else ''}; {listed}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_tensor_bytes(work: Callable[[], object]) -> int:
    """Peak bytes of tensors that `work` allocates, on top of what was allocated before.

    torch.profiler reports every allocation and release, so the figure is exact and of tensors alone.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        work()
    results: Any = profile.profiler.kineto_results
    changes = sorted((e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]")
    allocated = peak = 0
    for _, change in changes:
        allocated += change
        peak = max(peak, allocated)
    return peak


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silence the logging and progress bars of other libraries while they are benchmarked."""
    logging.disable(logging.WARNING)
    try:
        library: Any = import_module("transformers")
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
        yield
    finally:
        logging.disable(logging.NOTSET)
