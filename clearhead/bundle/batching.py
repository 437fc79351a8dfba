"""Batches for inference: rows of ids in; padded tensors of rows of similar length out.

Texts of similar length share a batch of about `TOKENS` tokens, so that little is computed for padding.
Shape suffixes: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..errors import InputError

TOKENS = 384  # per batch: its activations fit into the processor's cache


def length_batches(
    lengths: Sequence[int], rows: int | None = None, *, tokens: int = TOKENS
) -> Iterator[list[int]]:
    """Indices of rows of similar length; longest first, so that running out of memory happens at once.

    `rows` per batch, or as many as have about `tokens` tokens.
    """
    if rows is not None and rows < 1:
        raise InputError(f"batch_size is {rows}, expected 1 or more")
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    at = 0
    while at < len(order):
        count = rows or max(1, tokens // max(1, lengths[order[at]]))
        yield order[at : at + count]
        at += count


def pad_rows(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Padded ids, and a mask of the real ones; None if there is no padding."""
    length = max(map(len, rows))
    if all(len(row) == length for row in rows):
        return torch.tensor(rows, device=device), None
    ids_BT = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], device=device)
    ends_B = torch.tensor([len(row) for row in rows])
    return ids_BT, (torch.arange(length)[None] < ends_B[:, None]).to(device)
