"""Order: (seed, epoch, count) in, every row number once out: computed, with no stream to lose.

The same numbers give the same order on every machine and with every version of NumPy, because only integer
arithmetic is used. Nothing here touches a global generator.
"""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

Ints = NDArray[np.int64]
GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64 (Steele 2014)


def key(seed: int, *purpose: str | int) -> int:
    """64 bits that depend on a seed and on what they are for."""
    words = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "little")


def draws(seed: int, *purpose: str | int) -> random.Random:
    """A generator of one's own, for a handful of draws; only its `random()` is promised to stay the same."""
    return random.Random(key(seed, *purpose))


def noise(seed: int, *purpose: str | int, count: int) -> NDArray[np.uint64]:
    """`count` hashed numbers of 64 bits; number i is a function of the key and i alone."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(key(seed, *purpose))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def order(seed: int, epoch: int, count: int, purpose: str = "rows") -> Ints:
    """The rows 0 to count - 1 in the order of this epoch."""
    hashed = noise(seed, "order", purpose, epoch, count=count)
    shuffled: Ints = np.argsort(hashed, kind="stable").astype(np.int64)
    return shuffled


def batch(seed: int, step: int, *, count: int, size: int) -> Ints:
    """The rows of step 1, 2, ...: always `size` of them, and every row once before any row twice.

    The last batch of an epoch is filled up with the first rows of the next.
    """
    if step < 1 or size < 1 or count < 1:
        raise InputError(
            f"step {step}, size {size}, count {count}: each must be at least 1; steps start at 1"
        )
    places = np.arange((step - 1) * size, step * size)
    epochs = places // count
    rows = np.empty(size, np.int64)
    for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
        inside = epochs == epoch
        rows[inside] = _kept(seed, epoch, count)[places[inside] % count]
    return rows


@lru_cache(4)
def _kept(seed: int, epoch: int, count: int) -> Ints:
    """The order of an epoch is asked for at every step; keeping it changes nothing but the time."""
    return order(seed, epoch, count)
