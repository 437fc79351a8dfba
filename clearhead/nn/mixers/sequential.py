"""Sequential mixers: hidden states in, hidden states out, each text scanned from its first token on.

Padding and packing are removed before the scan and restored after it; a cache keeps the state of the scan.
Shape suffixes: B batch, T tokens, R texts, L tokens of the longest text, D width.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import ClassVar

import torch
from torch import Tensor

from ...errors import UnsupportedError
from ..cache import State
from ..context import Context
from ..kernels.kernel import Need, needs, raise_unsupported
from ..kernels.sequences import sequences
from ..layers import LinearLayer
from ..multi_head import TokenMixerModule
from ..tap import OFF
from ..view import View


class SequentialMixer(TokenMixerModule):
    SITES = ("mix", "out")
    supports: ClassVar[frozenset[Need]] = frozenset({"causal", "padding", "documents"})
    cache_kind: ClassVar[str] = "state"

    def __init__(self, inner: int | None, width: int) -> None:
        super().__init__()
        self.out = None if inner is None else LinearLayer(inner, width)

    def scan(
        self, x_RLD: Tensor, length_R: Tensor | None, state: State | None, *, causal: bool
    ) -> tuple[Tensor, State]:
        """Over whole texts, starting from a state; behind the end of a text there are zeros."""
        raise NotImplementedError

    def require(self, needs: AbstractSet[Need]) -> None:
        raise_unsupported(
            type(self).__name__.lstrip("_"), needs - self.supports, {}, "choose Attention, which can"
        )

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        self.require(needs(ctx.view, None, OFF) - {"uneven"})
        if ctx.cache is None:
            mixed = self._whole(x_BTD, ctx.view)
        else:
            mixed, ctx.cache.state = self._further(x_BTD, ctx.view, ctx.cache.state)
        mixed = ctx.tap("mix", mixed)
        return ctx.tap("out", mixed if self.out is None else self.out(mixed))

    def _whole(self, x_BTD: Tensor, view: View) -> Tensor:
        found, causal = sequences(view), view.outline.causal
        if found is None:
            return self.scan(x_BTD, None, None, causal=causal)[0]
        side = found.keys
        return side.put(self.scan(side.take(x_BTD), side.length_S, None, causal=causal)[0])

    def _further(self, x_BTD: Tensor, view: View, state: State | None) -> tuple[Tensor, State]:
        """New tokens only, continuing from the state. Rows without new tokens keep theirs."""
        if view.outline.packed:
            raise UnsupportedError(
                "a running state is of one text; packed texts cannot be decoded with a cache"
            )
        found = sequences(view)
        if found is None:
            return self.scan(x_BTD, None, state, causal=True)
        side, rows = found.queries, found.row_S
        length_R, x_RLD = side.length_S, side.take(x_BTD)
        before = None if state is None else tuple(part[rows] for part in state)
        mixed, after = self.scan(x_RLD, length_R, before, causal=True)
        if state is None:
            state = tuple(part.new_zeros(len(x_BTD), *part.shape[1:]) for part in after)
        came = (length_R > 0).nonzero()[:, 0]
        moved = (part.index_copy(0, rows[came], new[came]) for part, new in zip(state, after, strict=True))
        return side.put(mixed), tuple(moved)


def at_end(x_RLD: Tensor, length_R: Tensor, count: int) -> Tensor:
    """(R, count, D): positions `length` to `length + count` of each row."""
    at = length_R[:, None] + torch.arange(count, device=x_RLD.device)
    return x_RLD.gather(1, at[..., None].expand(-1, -1, x_RLD.shape[-1]))
