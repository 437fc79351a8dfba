"""Determinism: seeded random generators, and the torch settings under which equal inputs give equal bits."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils import deterministic as torch_deterministic

from ..nn import generator

HAVE_GENERATOR = ("cuda", "mps")  # devices that do not draw from the CPU's generator


@contextmanager
def seeded(device: torch.device, seed: int, *purpose: str | int) -> Iterator[None]:
    """Seed torch's global generators, which dropout uses, and restore them afterwards."""
    key = generator(seed, *purpose).initial_seed()
    own = device.type in HAVE_GENERATOR
    with torch.random.fork_rng([device] if own else [], device_type=device.type if own else "cuda"):
        torch.default_generator.manual_seed(key)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(key)
        elif device.type == "mps":
            torch.mps.manual_seed(key)
        yield


@contextmanager
def deterministic(threads: int | None) -> Iterator[None]:
    """A fixed number of threads and torch's deterministic algorithms, both restored afterwards."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    threads_before = torch.get_num_threads()
    strict = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch_deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    # Filling uninitialised memory costs time and does not affect determinism.
    torch_deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        torch.use_deterministic_algorithms(strict, warn_only=warn)
        torch_deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def environment_facts(device: torch.device) -> dict[str, Any]:
    """What else the bits depend on: in another environment a resumed run is close, not bit-identical."""
    return {
        "torch": torch.__version__,
        "build": sha256(torch.__config__.show().encode()).hexdigest()[:16],
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "device": str(device),
        "threads": torch.get_num_threads(),
    }


def git_commit() -> str | None:
    """The git commit of this code, if it is in a repository."""
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=5).stdout.strip()
    return None
