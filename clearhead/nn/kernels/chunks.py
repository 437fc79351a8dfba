"""Chunked local attention (Reformer, Kitaev 2020), and the functions for chunks that LSH attention shares.

A text is cut into chunks; each attends to itself, `before` chunks back and `after` ahead. The order is
circular: the first chunk looks back at the last, as in the reference; under a causal mask this has no effect.
Shape suffixes: B batch, H heads, T tokens of a text, C chunks, W tokens of a chunk, S keys of a chunk,
K keys, E head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import SpecError
from ...spec import Amount, BlockLength, Rate
from ..cost import AttentionShape, PartCost
from ..view import View
from . import costs
from .blocks import BlockKernel, Blocks
from .costs import Sparse
from .kernel import AttentionKernel, Kernel
from .sequences import sequence_slots


@dataclass(frozen=True, kw_only=True)
class Chunks(AttentionKernel):
    """Tokens attend to their own chunk and its neighbours. Texts are padded to a multiple of `multiple`."""

    chunk: BlockLength = 64
    before: Amount = 1
    after: Amount = 0
    multiple: int | None = None  # None: of the chunk
    dropout: Rate = 0.0

    one_text: ClassVar[bool] = True

    def check(self) -> None:
        check_chunks("Chunks", self.chunk, self.multiple)

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Chunks(self)

    def cost(self, at: AttentionShape) -> PartCost:
        """The chunks of one text."""
        size = self.chunk if at.queries <= self.chunk else self.multiple or self.chunk
        count = -(-at.queries // size) * size // self.chunk
        keys = self.chunk * (1 + sum(neighbour_range(count, self.before, self.after)))
        return Sparse(count, self.chunk, keys).cost(at, self.dropout) + costs.output_copy(at)


class _Chunks(BlockKernel):
    supports = frozenset({"causal", "mask", "bias", "uneven", "pattern"})
    counts_slots = True

    def __init__(self, spec: Chunks) -> None:
        super().__init__(spec.dropout)
        self.spec = spec

    def blocks(self, view: View, heads: int) -> Sequence[Blocks]:
        rows = [[self._text(text) for text in row] for row in sequence_slots(view)]
        count = max(sum(len(q) for q, _ in row) for row in rows)
        width = max((k.shape[1] for row in rows for _, k in row), default=1)
        filled = [
            (_filled([q for q, _ in row], count, self.spec.chunk), _filled([k for _, k in row], count, width))
            for row in rows
        ]
        q_BCW, k_BCS = (torch.stack(part).to(view.k_pos.device) for part in zip(*filled, strict=True))
        q_BCW = (q_BCW - view.start).clamp(min=-1)  # cached tokens are not queries
        q_BCW = q_BCW.masked_fill(q_BCW >= view.queries, -1)
        asking = (q_BCW >= 0).flatten(2).any(-1).any(0)
        return [Blocks(q_BCW[:, asking], k_BCS[:, None, asking])]

    def _text(self, slots_T: Tensor) -> tuple[Tensor, Tensor]:
        """The chunks of one text (C, W), and the keys of each (C, S)."""
        size = self.spec.chunk if len(slots_T) <= self.spec.chunk else self.spec.multiple or self.spec.chunk
        q_CW = F.pad(slots_T, (0, -len(slots_T) % size), value=-1).reshape(-1, self.spec.chunk)
        return q_CW, with_neighbours(q_CW, self.spec.before, self.spec.after)


def with_neighbours(x_CW: Tensor, before: int, after: int) -> Tensor:
    """(..., C, S): each chunk with its neighbours, in circular order; no chunk is listed twice."""
    before, after = neighbour_range(x_CW.shape[-2], before, after)
    return torch.cat([x_CW.roll(-i, dims=-2) for i in range(-before, after + 1)], dim=-1)


def neighbour_range(count: int, before: int, after: int) -> tuple[int, int]:
    """How many chunks back and ahead there are, in a circle of `count` chunks."""
    before = min(before, count - 1)
    return before, min(after, count - 1 - before)


def check_chunks(name: str, chunk: int, multiple: int | None) -> None:
    """The checks that all chunked kernels share."""
    if multiple is not None and (not 1 <= multiple <= 2**16 or multiple % chunk):
        raise SpecError(
            f"{name}.multiple is {multiple}, expected a multiple of the chunk, {chunk}, to 65,536"
        )


def _filled(parts: list[Tensor], count: int, width: int) -> Tensor:
    """The parts concatenated, and padded with -1."""
    whole = torch.full((count, width), -1)
    start = 0
    for part in parts:
        whole[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    return whole
