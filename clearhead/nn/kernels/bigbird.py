"""BigBird attention (Zaheer 2020): blocks that see their neighbours, both ends of the text, and a few others.

    a block in the middle     itself, one to each side, the first, the last, and `random` random ones
    the first and the last    all blocks

Blocks are counted within each text, from its first real token to its last: padding and packing change
nothing. Work grows with length times block.
Shape suffixes: B batch, H heads, C blocks, W queries of a block, S keys of a block, R random blocks, K keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from ...errors import SpecError, UnsupportedError
from ...spec import Amount, BlockLength, Rate
from ..cost import AttentionShape, PartCost
from ..view import View
from . import costs
from .bigbird_plan import Ints, random_blocks
from .blocks import BlockKernel, Blocks
from .costs import Sparse
from .kernel import AttentionKernel, Kernel, Need
from .sequences import sequence_slots


@dataclass(frozen=True, kw_only=True)
class BigBird(AttentionKernel):
    """Block-sparse attention. Random blocks depend on `seed` and the length; each layer has its own seed."""

    block: BlockLength = 64
    random: Amount = 3
    seed: int = 0
    longest: int = 4096  # the length of the plan in the paper
    # Random blocks outside of training: "drawn" as in training, or always the "first" (`transformers`).
    resting: Literal["drawn", "first"] = "drawn"
    full_until: Amount = 0  # texts of up to this many tokens use full attention
    dropout: Rate = 0.0

    one_text: ClassVar[bool] = True

    def check(self) -> None:
        if self.random > 64:
            raise SpecError(f"BigBird.random is {self.random}, expected at most 64 blocks")

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _BigBird(self)

    def cost(self, at: AttentionShape) -> PartCost:
        """The blocks in the middle of one text, a list per head, and the two ends, which are global."""
        count = 0 if at.queries <= self.full_until else -(-at.queries // self.block)
        middle = max(count - 2, 0)
        ends = at.queries - middle * self.block
        keys = (5 + self.random) * self.block
        found = Sparse(middle, self.block, keys, lists=at.heads).cost(at, self.dropout)
        found += Sparse(1, ends, at.keys).cost(at, self.dropout)
        return found + costs.output_copy(at)


class _BigBird(BlockKernel):
    supports = frozenset({"mask", "bias", "pattern"})
    reasons: ClassVar[dict[Need, str]] = {
        "causal": "every new token changes which blocks are the last ones and the random ones",
        "uneven": "every new token changes which blocks are the last ones and the random ones",
    }

    def __init__(self, spec: BigBird) -> None:
        super().__init__(spec.dropout)
        self.spec = spec

    def blocks(self, view: View, heads: int) -> Sequence[Blocks]:
        """The global tokens (both ends of each text), and the middle blocks with their lists of keys."""
        if view.globals_BK is not None:
            raise UnsupportedError("BigBird attention has global blocks of its own; it takes no Global mask")
        rows = [[self._text(text.cpu().numpy(), heads) for text in row] for row in sequence_slots(view)]
        count = max(sum(len(q) for q, _, _ in row) for row in rows)
        width = max(sum(len(ends) for _, _, ends in row) for row in rows)
        size, keys = self.spec.block, (5 + self.spec.random) * self.spec.block
        q, k = np.full((len(rows), count, size), -1), np.full((len(rows), heads, count, keys), -1)
        ends = np.full((len(rows), 1, width), -1)
        for b, row in enumerate(rows):
            first, wide = 0, 0
            for middle, lists, both_ends in row:
                q[b, first : first + len(middle)], k[b, :, first : first + len(middle)] = middle, lists
                ends[b, 0, wide : wide + len(both_ends)] = both_ends
                first, wide = first + len(middle), wide + len(both_ends)
        # Rows have different numbers of blocks: -1 marks unused slots.
        at = view.k_pos.device
        everyone = torch.arange(view.keys, device=at)[None, None, None]
        places = [torch.from_numpy(x).to(at) for x in (q, k, ends)]
        return Blocks(places[2], everyone), Blocks(places[0], places[1])

    def _text(self, slots: Ints, heads: int) -> tuple[Ints, Ints, Ints]:
        """One text: queries (C, W) and keys (H, C, S) of its middle blocks, and the slots of its two ends."""
        spec, blocks = self.spec, -(-len(slots) // self.spec.block)
        grid: Ints = np.full((blocks, spec.block), -1)
        grid.flat[: len(slots)] = slots
        if blocks < 3 or len(slots) <= spec.full_until:
            nothing = np.empty((heads, 0, (5 + spec.random) * spec.block), dtype=np.int64)
            return grid[:0], nothing, slots
        i = np.arange(1, blocks - 1)
        left, right = np.where(i == 1, -1, i - 1), np.where(i == blocks - 2, -1, i + 1)
        near = np.stack([0 * i, left, i, right, 0 * i + blocks - 1], axis=1)
        drawn = np.zeros((heads, blocks - 2, spec.random), dtype=np.int64)
        if self.training or spec.resting == "drawn":
            drawn = random_blocks(blocks, spec.block, heads, spec.random, spec.seed, spec.longest)
        lists = np.concatenate([np.broadcast_to(near, (heads, *near.shape)), drawn], axis=2)
        keys = np.where(lists[..., None] < 0, -1, grid[lists]).reshape(heads, blocks - 2, -1)
        ends = np.concatenate([grid[0], grid[-1]])
        return grid[1:-1], keys, ends[ends >= 0]
