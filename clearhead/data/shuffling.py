"""Shuffling: (seed, epoch, count) in, a permutation of the rows out; a function, not a random stream.

The same arguments give the same order on every machine and with every version of NumPy, because only integer
arithmetic is used. Global generators are not touched.
"""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

IntArray = NDArray[np.int64]
GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64 (Steele 2014)


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 64-bit seed derived from a seed and a purpose."""
    words = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "little")


def generator_for(seed: int, *purpose: str | int) -> random.Random:
    """A generator for a seed and a purpose; only its `random()` is the same in every version of Python."""
    return random.Random(derive_seed(seed, *purpose))


def hashed_numbers(seed: int, *purpose: str | int, count: int) -> NDArray[np.uint64]:
    """`count` hashed 64-bit numbers; number i depends on the derived seed and i alone (SplitMix64)."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(derive_seed(seed, *purpose))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def epoch_order(seed: int, epoch: int, count: int, purpose: str = "rows") -> IntArray:
    """The rows 0 to count - 1 in the order of this epoch."""
    hashed = hashed_numbers(seed, "order", purpose, epoch, count=count)
    shuffled: IntArray = np.argsort(hashed, kind="stable").astype(np.int64)
    return shuffled


def rows_of_step(seed: int, step: int, *, count: int, size: int) -> IntArray:
    """The rows of step 1, 2, ...: always `size` of them, and every row once before any row twice.

    The last batch of an epoch is filled up with the first rows of the next.
    """
    if step < 1 or size < 1 or count < 1:
        raise InputError(
            f"step {step}, size {size}, count {count}: each must be at least 1; steps start at 1"
        )
    positions = np.arange((step - 1) * size, step * size)
    epochs = positions // count
    rows = np.empty(size, np.int64)
    for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
        in_epoch = epochs == epoch
        rows[in_epoch] = _cached_order(seed, epoch, count)[positions[in_epoch] % count]
    return rows


@lru_cache(4)
def _cached_order(seed: int, epoch: int, count: int) -> IntArray:
    """`epoch_order`, cached: it is needed at every step of an epoch."""
    return epoch_order(seed, epoch, count)
