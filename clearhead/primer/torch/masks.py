"""Masks: the notes' ways to make one, and the door where each of them becomes a rule of the core.

The notes write masks in three ways: True = may attend, 1 = blocked, and 0 / -inf to be added. Here a mask of
ones and zeros means 1 = may attend, one with negative numbers is read as added to the scores, and one that
`clearhead.primer.numpy` made says itself what its ones mean.
Shape suffixes: B sentences, H heads, Q queries, K keys, T tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ...nn import doors
from ...nn.masks import Everyone, Given, Mask
from ..numpy.masks import Blocked, mask_from_blocked

MaskLike = Tensor | np.ndarray[Any, Any] | Mask | None


def create_padding_mask(seq: Tensor, pad_idx: int = 0) -> Tensor:
    """ids (B, T) -> (B, 1, 1, T), True = real token; it stretches over heads and queries.

    One note gave (B, T) with 1 = padding: added to scores (B, T, T) it blocks words of other sentences.
    """
    if seq.ndim != 2:
        raise InputError(f"ids are (sentences, tokens), given {tuple(seq.shape)}")
    return (seq != pad_idx)[:, None, None, :]


def create_look_ahead_mask(size: int, device: torch.device | str | None = None) -> Tensor:
    """(T, T), True on and below the diagonal: itself and the past."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def create_masks(
    src: Tensor, tgt: Tensor, src_pad_idx: int = 0, tgt_pad_idx: int = 0
) -> tuple[Tensor, Tensor]:
    """Ids -> the source's mask (B, 1, 1, S) and the target's (B, 1, T, T): real, and not in the future."""
    ahead = create_look_ahead_mask(tgt.shape[1], tgt.device)
    return create_padding_mask(src, src_pad_idx), create_padding_mask(tgt, tgt_pad_idx) & ahead


def generate_square_subsequent_mask(size: int) -> Tensor:
    """(T, T) of 0 and -inf above the diagonal, to be added to scores.

    The notes hand it to code that blocks where a mask is 0: only the future stays visible. To see it there,
    change the last word: the first logits move. Every door here knows such a mask by its -inf.
    """
    return torch.full((size, size), float("-inf")).triu(1)


def at_attention(mask: MaskLike, *, batch: int, queries: int, keys: int) -> Mask:
    """Any mask of the notes as a rule over (batch, queries, keys)."""
    if mask is None or isinstance(mask, Mask):
        rule = Everyone() if mask is None else mask
        rule.fit(batch, queries, keys)
        return rule
    allowed = _four(mask, batch, queries, keys)
    return Given(allowed.expand(*allowed.shape[:2], queries, keys))


def at_source(mask: MaskLike, batch: int, length: int) -> Mask:
    """A mask over source tokens: which of them are real, the same for everybody who looks."""
    if mask is None or isinstance(mask, Mask):
        return at_attention(mask, batch=batch, queries=length, keys=length)
    flat = _tensor(mask)
    if flat.ndim == 2 and tuple(flat.shape) == (batch, length):  # (sentences, tokens), whatever else it fits
        flat = flat[:, None, None, :]
    allowed_BHQK = _four(flat, batch, length, length)
    if not bool((allowed_BHQK == allowed_BHQK[:, :1, :1]).all()):
        raise InputError(
            f"src_mask is {tuple(flat.shape)} and differs from query to query; expected (batch, 1, 1, "
            "length), True = real token: create_padding_mask(src)"
        )
    return doors.real(allowed_BHQK[:, 0, 0].expand(batch, length))


def at_target(mask: MaskLike, batch: int, length: int) -> Mask:
    """A mask over target tokens; a token that nobody may see is padding, and does not count as a position."""
    rule = at_attention(mask, batch=batch, queries=length, keys=length)
    if not isinstance(rule, Given):
        return rule
    seen_BT = rule.allowed_BHQK.any(1).any(1).expand(batch, length)
    return rule & doors.real(seen_BT)


def _tensor(mask: Any) -> Tensor:
    if isinstance(mask, Blocked):
        return torch.from_numpy(mask_from_blocked(mask))
    return torch.as_tensor(mask)


def _four(mask: Any, batch: int, queries: int, keys: int) -> Tensor:
    """(1 or B, 1 or H, 1 or Q, K) of True = may attend."""
    given = _tensor(mask)
    shape, added = tuple(given.shape), given.is_floating_point() and bool((given < 0).any())
    if given.ndim == 2 and shape == (queries, keys) == (batch, keys) and batch > 1 and not added:
        raise InputError(
            f"a mask of shape {shape} for {batch} sentences of {queries} tokens: its first axis could mean "
            "either; mask[None, None] is one for all, mask[:, None, None] one per sentence"
        )
    if given.ndim == 2:
        given = given[None, None] if shape[0] in (1, queries) else given[:, None, None]
    elif given.ndim == 3:
        given = given[:, None]
    sizes = tuple(given.shape)
    fits = len(sizes) == 4 and sizes[0] in (1, batch) and sizes[2] in (1, queries) and sizes[3] == keys
    if not fits:
        raise InputError(
            f"the mask is {shape}; expected ({queries}, {keys}), ({batch}, {keys}), "
            f"({batch}, {queries}, {keys}) or ({batch}, heads, {queries}, {keys})"
        )
    rule = doors.additive(given) if added else doors.allowed(given)
    assert isinstance(rule, Given)
    return rule.allowed_BHQK
