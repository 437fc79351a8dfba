"""Turns: several ways to do one piece of work in; how much each does in a second out, measured side by side.

Each side works once before the clock starts; then all take turns, round by round, so that whatever else the
machine is doing disturbs them alike. What counts is the median of the rounds, and the ratios.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch

from ..errors import InputError

Work = Callable[[], int]
"""Does the work once and says how much it was: tokens, sentences."""
Say = Callable[[str], None]


def in_turns(
    sides: Mapping[str, Work],
    rounds: int,
    say: Say,
    clock: Callable[[], float] = time.perf_counter,
    pause: float = 0.0,
) -> dict[str, float]:
    """Units of work in a second, by the name of the side; `pause` seconds of rest before each turn."""
    if rounds < 1:
        raise InputError(f"rounds is {rounds}, expected 1 or more")
    for name, work in sides.items():
        say(f"warming up: {name}")
        work()
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(1, rounds + 1):
        for name, work in sides.items():
            say(f"round {turn} of {rounds}: {name}")
            time.sleep(pause)
            begun = clock()
            amount = work()
            speeds[name].append(amount / (clock() - begun))
    return {name: median(each) for name, each in speeds.items()}


def fair_clock() -> Callable[[], float]:
    """With one thread the processor's time: whatever else the machine does is not in it. Else the wall's."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def threads(count: int | None) -> int:
    """How many cores to use: all that this process may have, or as many as asked for. Set for torch, too."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count is not None and not 1 <= count <= have:
        raise InputError(f"threads is {count}; this machine has 1 to {have}")
    torch.set_num_threads(count or have)
    return count or have


def installed(packages: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Peers that are here, with their versions, and those that are not."""
    here = [name for name in packages if find_spec(name.replace("-", "_"))]
    return {name: metadata.version(name) for name in here}, [name for name in packages if name not in here]


def machine(cores: int, peers: Mapping[str, str]) -> str:
    """One line to stand beside figures: processor, threads, versions."""
    versions = {"torch": torch.__version__, **peers}
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{_processor()}, {cores} thread{'s' if cores > 1 else ''}; {told}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
