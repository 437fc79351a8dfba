"""Padding: lists of ids of different lengths in, one rectangle and its mask out, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..data.padding import pad


def padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    """(B, T): the rows, filled up behind."""
    return torch.from_numpy(pad(rows, filler)[0])


def real(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, T): 1 where a row has a token of its own."""
    return torch.from_numpy(pad(rows, 0)[1]).long()
