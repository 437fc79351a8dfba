"""Global tokens: their flags, their slots, and the block of queries that attend to every key.

Shape suffixes: B batch, K keys, N global tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..view import View
from .blocks import Blocks


def globals_of(view: View, always: tuple[int, ...]) -> Tensor | None:
    """(1 or B, K) flags of the global tokens: those of the mask, and the positions `always` of each text."""
    wide_BK = view.globals_BK
    for position in always:
        here = view.k_pos == position
        here = here if view.real_BK is None else here & view.real_BK
        wide_BK = here if wide_BK is None else wide_BK | here
    return wide_BK if wide_BK is not None and bool(wide_BK.any()) else None


def global_block(view: View, wide_BK: Tensor | None) -> Blocks | None:
    """The queries of global tokens as one block over all keys; `None` if there are none."""
    if wide_BK is None:
        return None
    wide_BQ = wide_BK[:, view.start : view.start + view.queries]
    if not bool(wide_BQ.any()):
        return None
    return Blocks(
        slots_of(wide_BQ)[:, None], torch.arange(view.keys, device=wide_BK.device)[None, None, None]
    )


def slots_of(flags_BK: Tensor) -> Tensor:
    """(1 or B, N): the indices of the flags, padded with -1 in rows that have fewer."""
    count_B = flags_BK.sum(1)
    slots = torch.argsort(~flags_BK, dim=1, stable=True)[:, : int(count_B.max())]
    return slots.masked_fill(torch.arange(slots.shape[1], device=slots.device) >= count_B[:, None], -1)


def of_queries(wide_BK: Tensor, view: View) -> Tensor:
    return wide_BK[:, None, view.start : view.start + view.queries, None]
