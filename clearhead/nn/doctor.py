"""The mask doctor: a mask tensor in, what is wrong with it out, in sentences.

It looks at a tensor with our meaning, True = may attend, and names the classic mistakes: the wrong
polarity, attention to the future, a shape that will broadcast over the wrong sentences, rows that see
nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import mask_adapters
from .masks import Mask
from .view import View


def check_mask(
    mask: Tensor | Mask, *, batch: int, length: int, causal: bool, real_BT: Tensor | None = None
) -> list[str]:
    """The findings for a square mask over `length` tokens; an empty list means no problem.

    `causal`: attending to later tokens is a mistake here; `real_BT` which tokens are not padding.
    """
    if isinstance(mask, Tensor):
        wrong = _misshapen(mask, batch, length)
        if wrong:
            return [wrong]
        if mask.is_floating_point() and bool(torch.isinf(mask).any()):
            found = ["polarity: a 0/-inf mask; convert it with mask_adapters.from_additive()"]
            mask = mask_adapters.from_additive(mask)
        else:
            found = []
            mask = (
                mask_adapters.from_attention_mask(mask)
                if mask.ndim == 2 and mask.shape[0] == batch
                else mask_adapters.from_allowed(mask)
            )
    else:
        found = []
    slots = torch.arange(length)[None]
    allowed = View(mask, batch, slots, slots).dense
    if allowed is None:
        allowed = torch.ones(1, 1, length, length, dtype=torch.bool)
    real = torch.ones(batch, length, dtype=torch.bool) if real_BT is None else real_BT.bool()
    allowed = allowed.expand(batch, -1, -1, -1).any(1)  # any head
    return found + _polarity(allowed, real) + _future(allowed, causal=causal) + _blocked(allowed, real)


def _misshapen(mask: Tensor, batch: int, length: int) -> str | None:
    """Only shapes that mean one thing pass: (B,T), (T,T), (B,T,T), (1 or B, 1 or H, 1 or T, T)."""
    shape = tuple(mask.shape)
    right = {
        2: shape in ((batch, length), (length, length)),
        3: shape == (batch, length, length),
        4: len(shape) == 4 and shape[0] in (1, batch) and shape[2:] == (length, length),
    }
    if right.get(mask.ndim, False):
        return None
    return (
        f"shape: {shape} fits no meaning for {batch} rows of {length} tokens; expected "
        f"({batch}, {length}), ({length}, {length}) or ({batch}, heads, {length}, {length})"
    )


def _polarity(allowed_BQK: Tensor, real_BK: Tensor) -> list[str]:
    """Inverted: padding is visible and real tokens are not, or the future is visible and the past is not."""
    seen_BK = allowed_BQK.any(1)
    if bool((~real_BK).any()) and bool((seen_BK == ~real_BK).all()):
        return [
            "polarity: only the padding may be seen; the mask is inverted, use "
            "mask_adapters.from_padding_mask()"
        ]
    length = allowed_BQK.shape[-1]
    ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
    if length > 1 and bool((allowed_BQK == ahead).all()):
        return [
            "polarity: only the future may be seen; the mask is inverted, use mask_adapters.from_blocked()"
        ]
    return []


def _future(allowed_BQK: Tensor, *, causal: bool) -> list[str]:
    leaks = allowed_BQK.triu(1).nonzero()
    if not causal or len(leaks) == 0:
        return []
    b, q, k = leaks[0].tolist()
    return [
        f"future: {len(leaks)} pairs attend to later tokens; the first is row {b}, token {q} at token {k}"
    ]


def _blocked(allowed_BQK: Tensor, real_BK: Tensor) -> list[str]:
    empty = (~allowed_BQK.any(-1) & real_BK).nonzero()
    if len(empty) == 0:
        return []
    b, q = empty[0].tolist()
    return [f"blocked: {len(empty)} tokens see nothing; the first is row {b}, token {q}"]
