"""BigBird's random blocks: sizes and a seed in, the random blocks that each block attends to out.

Random numbers are drawn as in the original code, in its order, so that a checkpoint gets the blocks it was
trained with: texts of 1024, 3072 and 4096 tokens have their own plan, all others use the first blocks.
Shape suffixes: H heads, C middle blocks (all but the first and the last), R random blocks.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
PAPER = (1024, 3072, 4096)  # lengths in tokens


@lru_cache(maxsize=256)
def random_blocks(blocks: int, size: int, heads: int, count: int, seed: int, longest: int) -> Ints:
    """(H, C, R) numbers of blocks, -1 where a short text has no block left to draw."""
    draw = np.random.RandomState(seed)  # a stream of its own, equal to numpy's global one after seed()
    if blocks * size in PAPER and longest >= blocks * size:
        return np.stack([_paper(longest // size, size, count, draw)[: blocks - 2] for _ in range(heads)])
    return _planned(blocks, heads, count, draw)[:, 1:-1]


def _paper(blocks: int, size: int, count: int, draw: np.random.RandomState) -> Ints:
    """One head: any block but both ends and the neighbours; near the end also those, as published."""
    middle = np.arange(1, blocks - 1)
    last = 1024 // size - 1 if 2 * size < 1024 else blocks - 1
    rows = np.full((blocks - 2, count), -1)
    for i in range(1, blocks - 1):
        start = i - 2
        if i <= 2:
            choice = middle[i + 1 : last]
        elif i >= blocks - 3:
            choice = middle[:last]
        elif start > last or i + 1 == last:
            choice = middle[: min(start, last)]
        else:
            choice = np.concatenate([middle[:start], middle[i + 1 : last]])
        chosen = draw.permutation(choice)[:count]
        rows[i - 1, : len(chosen)] = chosen
    return rows


def _planned(blocks: int, heads: int, count: int, draw: np.random.RandomState) -> Ints:
    """All heads: a number of blocks from each of two ranges of the text, as in the original code."""
    rows = np.full((heads, blocks, count), -1)
    if 2 * count + 5 < blocks:
        ends, counts = (2 * count + 5, blocks), (count, 0)
    elif count + 5 < blocks:
        ends, counts = (count + 5, blocks), (count // 2, count - count // 2)
    else:
        ends, counts = (blocks, blocks), (count, 0)
    # Rows are in two ranges, and each draws from both: first the columns `near`, then `far`.
    near, far = slice(0, counts[0]), slice(counts[0], count)
    for (top, bottom), (start, end), where in (
        ((1, ends[0]), (0, ends[0]), near),
        ((1, ends[0]), (ends[0], blocks), far),
        ((ends[0], blocks), (0, ends[0]), near),
        ((ends[0], blocks), (ends[0], blocks), far),
    ):
        if where.stop == where.start:
            continue
        for i in range(top, bottom):
            for head in range(heads):
                chosen = _row(i, start, end, where.stop - where.start, draw)
                rows[head, i, where.start : where.start + len(chosen)] = chosen
    return rows


def _row(i: int, start: int, end: int, count: int, draw: np.random.RandomState) -> Ints:
    """Random blocks of a range, without those that block `i` attends to anyway."""
    seen = {i - 1, i, i + 1, 0, end - 1}
    seen |= {end - 2} if i == 1 else set()
    seen |= {1} if i == end - 2 else set()
    free = [b for b in draw.permutation(np.arange(start, end)) if b not in seen]
    return np.array(free[:count], dtype=np.int64)
