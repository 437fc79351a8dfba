"""Memory bandwidth: the speed at which torch's threads read memory that is in no cache.

Decoding one sequence reads every weight once per token, so this speed limits it, whatever computes.
"""

from __future__ import annotations

import time

import torch

BYTES = 512_000_000  # much more than the caches of a processor
ROUNDS = 6


def read_bandwidth() -> float:
    """Bytes per second: the best of a few rounds, because other load only ever adds to the time."""
    numbers = torch.ones(BYTES // 4).view(64, -1)  # rows, so that every thread has some
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        numbers.sum(1)
        seconds.append(time.perf_counter() - start)
    return numbers.nbytes / min(seconds)
