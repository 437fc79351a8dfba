"""Memory: a piece of work in; the most bytes that its tensors held at once out.

torch reports every allocation and release while it is watched, so the figure is exact, is that of tensors
alone, and does not depend on what else the process or the machine holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write to stderr, above whatever is shown there


def peak(work: Callable[[], object]) -> int:
    """Bytes on top of what was there before."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        work()
    results: Any = profile.profiler.kineto_results
    changes = sorted((e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]")
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most
