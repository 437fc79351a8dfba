"""Axial positions (Reformer): a long line of positions folded into a grid, a vector for each row and column.

A million positions need two thousand vectors. Shape suffixes: B batch, T tokens, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import InputError, SpecError
from ...spec import Dims
from ..cost import INDEX_BYTES, HiddenShape, PartCost, PositionCost
from ..positions import Positions, PositionScheme


@dataclass(frozen=True, kw_only=True)
class Axial(Positions):
    """A grid of `shape`; the vector of a position is that of its row concatenated with that of its column."""

    shape: tuple[int, int]
    widths: tuple[int, int]

    def check(self) -> None:
        if min(*self.shape, *self.widths) < 1:
            raise SpecError(f"Axial(shape={self.shape}, widths={self.widths}): all must be 1 or more")

    @property
    def max_length(self) -> int:
        return self.shape[0] * self.shape[1]

    def build(self, dims: Dims, width: int) -> PositionScheme:
        if sum(self.widths) != width:
            raise SpecError(f"Axial.widths {self.widths} must sum to the width, {width}")
        return _Axial(self)

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        (rows, columns), (one, two) = self.shape, self.widths
        parameters, saved = rows * one + columns * two, 2 * INDEX_BYTES * shape.length
        return PositionCost(tower=PartCost(parameters=parameters, saved=saved))


class _Axial(PositionScheme):
    def __init__(self, spec: Axial) -> None:
        super().__init__()
        (rows, columns), (one, two) = spec.shape, spec.widths
        self.shape = spec.shape
        # Shaped so that together they broadcast to the grid.
        self.tables = nn.ParameterList(
            [nn.Parameter(torch.empty(rows, 1, one)), nn.Parameter(torch.empty(1, columns, two))]
        )

    def add(self, x_BTD: Tensor, pos_BT: Tensor) -> Tensor:
        room = math.prod(self.shape)
        if pos_BT.device.type != "meta" and (last := int(pos_BT.max())) >= room:
            raise InputError(
                f"a sequence of {last + 1} tokens is longer than {room} axial positions; shorten the input"
            )
        row, column = pos_BT // self.shape[1], pos_BT % self.shape[1]
        return x_BTD + torch.cat([self.tables[0][row, 0], self.tables[1][0, column]], dim=-1)
