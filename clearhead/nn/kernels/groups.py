"""The texts of a call: which slots belong together. For kernels that count within a text, not over padding.

Shape suffixes: N texts of one length, B batch, H heads, T tokens of a text, K keys, E head width.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from ..view import View


@dataclass(frozen=True)
class Group:
    """All texts of one length: the row that each is in, and its slots, padding left out."""

    row_N: Tensor
    slot_NT: Tensor

    def take(self, x_BHKE: Tensor) -> Tensor:
        """(N, H, T, E): the vectors of these texts."""
        return x_BHKE.transpose(1, 2)[self.row_N[:, None], self.slot_NT].transpose(1, 2)

    def diagonal(self, x_BHQK: Tensor) -> Tensor:
        """(N, H, T, 1): of a square over queries and keys, what belongs to each token and itself."""
        diagonal_BHK = x_BHQK.diagonal(dim1=-2, dim2=-1)
        return diagonal_BHK.transpose(1, 2)[self.row_N[:, None], self.slot_NT].transpose(1, 2)[..., None]

    def put(self, x_BHKE: Tensor, made_NHTE: Tensor) -> Tensor:
        """The way back, into what the other tokens have."""
        rows = self.row_N[:, None].expand_as(self.slot_NT)
        return (
            x_BHKE.transpose(1, 2).index_put((rows, self.slot_NT), made_NHTE.transpose(1, 2)).transpose(1, 2)
        )


def slots(view: View) -> list[list[Tensor]]:
    """For each row (or once for all of them) the slots of each of its texts, without padding."""
    segment_BK = view.mask.segments()
    if segment_BK is None:
        return [[torch.arange(view.keys, device=view.k_pos.device)]]
    return [[(row == text).nonzero()[:, 0] for text in row[row >= 0].unique()] for row in segment_BK]


def groups(view: View) -> list[Group]:
    """The texts of a call, those of one length together."""
    rows = slots(view)
    rows = rows * view.batch if len(rows) < view.batch else rows
    by_length: defaultdict[int, list[tuple[int, Tensor]]] = defaultdict(list)
    for b, row in enumerate(rows):
        for text in row:
            by_length[len(text)].append((b, text))
    at = view.k_pos.device
    return [
        Group(torch.tensor([b for b, _ in same], device=at), torch.stack([text for _, text in same]))
        for same in by_length.values()
    ]
