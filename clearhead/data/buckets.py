"""Bucketing: lengths in, batches of a limited number of padded tokens out, rows of similar length together.

Rows are sorted by length, ties at random; where batches begin depends on the lengths alone. So every epoch
has the same number of batches, and the rows of a step are a function of (seed, step).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DataError, InputError
from .shuffling import IntArray, epoch_order, hashed_numbers

BatchPlan = list[IntArray]
MAX_PADDING_SHARE = 0.05  # a batch that is at least half full is closed rather than padded more than this


class Buckets:
    """`lengths` is one number per row, or one column per side for pairs; the budget counts all sides.

    A batch costs (number of rows) x (the longest of each side, added up), and never more than `tokens`.
    Each row comes once per epoch, each time with other rows of its length and at another place.
    """

    def __init__(self, lengths: ArrayLike, *, tokens: int, seed: int, rows: int | None = None) -> None:
        table = np.asarray(lengths, dtype=np.int64)
        self.lengths: IntArray = table[:, None] if table.ndim == 1 else table
        if self.lengths.ndim != 2 or not self.lengths.size:
            raise InputError(f"lengths of shape {table.shape}; expected (rows,) or (rows, sides)")
        if self.lengths.min() < 0 or (rows is not None and rows < 1):
            raise InputError(
                f"a length of {self.lengths.min()}, {rows} rows per batch; expected no less than 0, 1"
            )
        self.tokens, self.seed, self.rows = tokens, seed, rows
        self._check_lengths()
        self._keys = self._sort_keys()
        self._starts = self._batch_starts(self.lengths[np.lexsort(self._keys)].tolist())
        self.plan = lru_cache(2)(self._plan)

    def __len__(self) -> int:
        """Batches in an epoch; the same in every one."""
        return len(self._starts)

    def batch(self, step: int) -> IntArray:
        """The rows of step 1, 2, ...; epochs follow each other without a gap."""
        if step < 1:
            raise InputError(f"step is {step}; steps start at 1")
        epoch, index = divmod(step - 1, len(self))
        return self.plan(epoch)[index]

    def padding(self) -> float:
        """The share of the padded tokens that are not real."""
        padded = sum(len(rows) * int(self.lengths[rows].max(0).sum()) for rows in self.plan(0))
        return 1 - int(self.lengths.sum()) / max(padded, 1)

    def _plan(self, epoch: int) -> BatchPlan:
        ties = hashed_numbers(self.seed, "ties", epoch, count=len(self.lengths))
        rows = np.lexsort((ties, *self._keys)).astype(np.int64)
        batches = np.split(rows, self._starts[1:])
        return [batches[i] for i in epoch_order(self.seed, epoch, len(batches), "batches")]

    def _sort_keys(self) -> list[IntArray]:
        """By the side that is longest overall, then by the others, alternately ascending and descending
        (a snake order), so that neighbouring rows are always similar.
        """
        first, *others = np.argsort(-self.lengths.sum(0), kind="stable")
        main = self.lengths[:, first]
        sign = 1 - 2 * (main % 2)
        return [*(sign * self.lengths[:, side] for side in reversed(others)), main]

    def _batch_starts(self, lengths: list[list[int]]) -> list[int]:
        """Where batches begin in the sorted rows: before one is too large, or half full and too ragged."""
        starts, real, longest = [0], 0, [0] * len(lengths[0])
        for i, row in enumerate(lengths):
            count = i - starts[-1]
            longest_now = [max(pair) for pair in zip(longest, row, strict=True)]
            cost = (count + 1) * sum(longest_now)
            ragged = (
                real + sum(row) < (1 - MAX_PADDING_SHARE) * cost and 2 * count * sum(longest) > self.tokens
            )
            if count and (cost > self.tokens or ragged or count == self.rows):
                starts.append(i)
                longest_now, real = row, 0
            longest, real = longest_now, real + sum(row)
        return starts

    def _check_lengths(self) -> None:
        totals = self.lengths.sum(1)
        too_long = np.flatnonzero(totals > self.tokens)
        if len(too_long):
            numbers = ", ".join(str(row + 1) for row in too_long[:5]) + (", ..." if len(too_long) > 5 else "")
            raise DataError(
                f"{len(too_long):,} of {len(totals):,} rows do not fit into a batch of {self.tokens:,} "
                f"tokens (row {numbers}; the longest has {totals.max():,}); raise the budget or truncate"
            )


def pad(
    rows: Sequence[Sequence[int]], value: int, *, side: Literal["right", "left"] = "right"
) -> tuple[IntArray, NDArray[np.bool_]]:
    """ids_BT, padded with `value`, and real_BT: True for tokens, False for padding."""
    width = max(map(len, rows), default=0)
    ids = np.full((len(rows), width), value, dtype=np.int64)
    real = np.zeros((len(rows), width), dtype=np.bool_)
    for i, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[i, place], real[i, place] = row, True
    return ids, real
