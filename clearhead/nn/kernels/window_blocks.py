"""Window attention by blocks: a view with a window in; which keys each block of queries needs out.

A window of w tokens over n of them has n * w pairs, not n * n. Neighbouring queries share most of their keys,
so they are computed together: a block of queries, and all keys that any of them may see.
"""

from __future__ import annotations

import torch

from ..view import View
from .blocks import Blocks

SMALLEST_WIDTH = 64  # queries of a block, at least: small products cost more than the pairs they save


def width_of(left: int, right: int, queries: int, keys: int) -> int | None:
    """How many queries make a block; `None` where their keys would be most of the text."""
    width = min(max(left + right, SMALLEST_WIDTH), queries)
    return None if 2 * (left + width + right) > keys else width


def window_blocks(view: View) -> Blocks | None:
    """The blocks of a view with a window; `None` without one, or where it covers most of the text."""
    if view.outline.window is None or view.across:
        return None
    left, right = view.outline.window
    right = 0 if view.outline.causal else right
    queries, at = view.queries, view.k_pos.device
    width = width_of(left, right, queries, view.keys)
    if width is None:
        return None
    first_C1 = torch.arange(0, queries, width, device=at)[:, None]
    q_CW = first_C1 + torch.arange(width, device=at)
    k_CS = first_C1 + view.start + torch.arange(-left, width + right, device=at)
    inside = (k_CS >= 0) & (k_CS < view.keys)
    return Blocks(q_CW.masked_fill(q_CW >= queries, -1)[None], k_CS.masked_fill(~inside, -1)[None, None])
