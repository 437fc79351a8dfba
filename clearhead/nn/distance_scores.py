"""Scores by distance: what a position scheme adds to a score, for attention that computes few of all pairs.

Shape suffixes: H heads, A distances, C columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class DistanceScores:
    """What a scheme adds to a score, for every distance from -reach to reach: in tokens, and in blocks.

    For attention that computes few of all pairs, and so never asks for the bias of all.
    Shape suffix: A distances, 2 * reach + 1 of them.
    """

    reach: int
    tokens_HA: Tensor
    blocks_HA: Tensor

    def by_offset(self, scores_HA: Tensor, first: int, rows: int, columns: int) -> Tensor:
        """(H, rows, columns): the score of distance `first` + column - row."""
        start = self.reach + first
        window_HAC = scores_HA.unfold(1, columns, 1)
        return window_HAC[:, start - rows + 1 : start + 1].flip(1)
