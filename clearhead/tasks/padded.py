"""Padding: lists of ids of different lengths in, one rectangle and its mask out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    """(B, T): the rows, filled up behind."""
    length = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (length - len(row))] for row in rows], dtype=torch.long)


def real(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, T): 1 where a row has a token of its own."""
    length = max(map(len, rows))
    return torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
