"""Longformer attention (Beltagy 2020): a window around every token, and a few global tokens.

    local token    the keys within `window` steps of `dilation` to each side, and every global key
    global token   every key; with projections of its own where the attention has a second set

Work and memory grow with length times window. Which tokens are global is set by the mask of the call
(`Everyone() | Global(at=(0,))`) and by `always`.
Shape suffixes: B batch, H heads, C blocks, W queries of a block, S keys of a block, N global tokens, K keys,
E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import SpecError
from ...spec import Rate
from ..cost import AttentionShape, PartCost
from ..tap import Tap
from ..view import View
from . import costs
from .blocks import Blocks
from .costs import Sparse
from .global_tokens import global_block, globals_of, of_queries, slots_of
from .kernel import AttentionCall, AttentionKernel, Kernel, apply_weights

SMALLEST_BLOCK = 32  # queries of a block, at least: small products cost more than the pairs they save


@dataclass(frozen=True, kw_only=True)
class Longformer(AttentionKernel):
    """`window` tokens to each side (their `attention_window` counts both sides)."""

    window: int
    dilation: int = 1  # attend to every second, third, ... neighbour, and that much further
    always: tuple[int, ...] = ()  # positions of each text that are global in every call (a classifier's 0)
    dropout: Rate = 0.0

    one_text: ClassVar[bool] = True

    def check(self) -> None:
        if self.window < 1 or self.dilation < 1:
            raise SpecError(
                f"Longformer(window={self.window}, dilation={self.dilation}): both must be 1 or more"
            )
        if any(at < 0 for at in self.always):
            raise SpecError(f"Longformer.always is {self.always}, expected positions, 0 or more")

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Longformer(self)

    def cost(self, at: AttentionShape) -> PartCost:
        """Blocks of the window, and tokens that are always global; those of a mask are not known here."""
        window, dilation = _within(self, at.keys)
        block, each = _size(window, dilation, at.queries)
        wide = len(self.always)
        keys = block + 2 * window + wide
        near = Sparse(dilation * each, block, keys, into=False).cost(at, self.dropout)
        found = near + Sparse(1, wide, at.keys).cost(at, self.dropout)
        return found + costs.output_copy(at)


class _Longformer(Kernel):
    supports = frozenset({"causal", "mask", "bias", "uneven", "pattern", "second"})
    counts_slots = True

    def __init__(self, spec: Longformer) -> None:
        super().__init__()
        self.spec = spec

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        view, dropout = call.view, self.spec.dropout if self.training else 0.0
        wide_BK = globals_of(view, self.spec.always)
        local, everyone = self._local(view, wide_BK), global_block(view, wide_BK)
        # The second projections cost as much as the first: computed only for global tokens.
        second = call.second() if everyone and call.second else call
        if tap.wants("pattern"):
            plain = local.pattern(call)
            plain = everyone.pattern(second, into=plain) if everyone else plain
            seen = tap("pattern", plain)
            if seen is not plain:
                mixed, wide = (apply_weights(seen, v, dropout) for v in (call.v_BHKE, second.v_BHKE))
                return mixed if wide_BK is None else torch.where(of_queries(wide_BK, view), wide, mixed)
        mixed = local.attend(call, dropout)
        return everyone.attend(second, dropout, into=mixed) if everyone else mixed

    def _local(self, view: View, wide_BK: Tensor | None) -> Blocks:
        """Every query, the keys around it, and the global keys before those in each list."""
        (reach, step), at = _within(self.spec, view.keys), view.k_pos.device
        block, each = _size(reach, step, view.queries)
        place = torch.arange(each * block, device=at).reshape(-1, block)
        remainder = torch.arange(step, device=at)[:, None, None]
        q_CW = (place * step + remainder).flatten(0, 1)
        q_CW = q_CW.masked_fill(q_CW >= view.queries, -1)
        around = torch.arange(-reach, block + reach, device=at)
        k_CS = ((place[:, :1] + around) * step + remainder).flatten(0, 1) + view.start
        k_BHCS = k_CS.masked_fill((k_CS < 0) | (k_CS >= view.keys), -1)[None, None]
        near = (around - torch.arange(block, device=at)[:, None]).abs() <= reach
        if wide_BK is None:
            return Blocks(q_CW[None], k_BHCS, near)
        # A global key comes first, once; where it is also a neighbour, it is removed there.
        k_BHCS = k_BHCS.masked_fill(wide_BK[:, k_BHCS[0, 0].clamp(min=0)][:, None], -1)
        wide_BN = slots_of(wide_BK)
        front = wide_BN[:, None, None].expand(-1, 1, len(q_CW), -1)
        return Blocks(
            q_CW[None], torch.cat([front, k_BHCS], dim=-1), F.pad(near, (wide_BN.shape[1], 0), value=True)
        )


def _within(spec: Longformer, keys: int) -> tuple[int, int]:
    """Window and dilation, both limited to the text: pairs beyond it would be computed for nothing."""
    return min(spec.window, keys), min(spec.dilation, keys)


def _size(window: int, dilation: int, queries: int) -> tuple[int, int]:
    """Queries of a block, and blocks of each remainder: with dilation, only those see each other."""
    count = -(-queries // dilation)
    block = min(max(window, SMALLEST_BLOCK), count)
    return block, -(-count // block)
