"""Padding: rows of ids of several lengths in, one array and which of it is real out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .order import Ints


def pad(
    rows: Sequence[Sequence[int]], value: int, *, side: Literal["right", "left"] = "right"
) -> tuple[Ints, NDArray[np.bool_]]:
    """ids_BT, filled up with `value`, and real_BT: True where a token is."""
    width = max(map(len, rows), default=0)
    ids = np.full((len(rows), width), value, dtype=np.int64)
    real = np.zeros((len(rows), width), dtype=np.bool_)
    for i, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[i, place], real[i, place] = row, True
    return ids, real
