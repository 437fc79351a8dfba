"""Masks: how textbooks create them, and how each is converted to a mask of the core.

Three conventions are in use: True = may attend, 1 = blocked, and 0 / -inf to be added to the scores. Here

    booleans             True = may attend
    numbers 0 and 1      1 = may attend, as in `scores.masked_fill(mask == 0, -1e9)`
    numbers 0 and -inf   added to the scores: -inf (or -1e9) = blocked; zeros alone block nothing

and a mask made by `clearhead.primer.numpy` (1 = blocked) is recognised by its class. Numbers 0 and 1
that leave a query nothing to attend to are an error: they most likely mean 1 = blocked. Axes are (queries,
keys), (sentences, keys), (sentences, queries, keys) or (sentences, heads, queries, keys).

In a module of your own, keep a mask of fixed size with `self.register_buffer("mask", mask,
persistent=False)`. A buffer moves with the module in `.to(device)`, which a plain attribute does not, and no
optimizer changes it, as it would a parameter. `persistent=False` leaves it out of `state_dict()`: a mask can
be created again, and 5,000 by 5,000 numbers per layer are 100 MB of every checkpoint.

Shape suffixes: B sentences, H heads, Q queries, K keys, T tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ...nn import Everyone, Given, Mask, mask_adapters
from ..numpy.masks import Blocked, BlockedPadding, looks_like_padding, mask_from_blocked

MaskLike = Tensor | np.ndarray[Any, Any] | Mask | None


def create_padding_mask(seq: Tensor, pad_idx: int = 0) -> Tensor:
    """ids (B, T) -> (B, 1, 1, T), True = real token; it broadcasts over heads and queries.

    Four axes, because (B, T) beside scores (B, T, T) would block words of other sentences.
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

    Given to code that blocks where a mask is 0, only the future stays visible; to find that out, change the
    last word and see the first logits move. Here such a mask is recognised by its -inf.
    """
    return torch.full((size, size), float("-inf")).triu(1)


def at_attention(mask: MaskLike, *, batch: int, queries: int, keys: int, of_source: bool = False) -> Mask:
    """Any of these masks as a rule over (batch, queries, keys). `of_source`: (batch, keys) is padding."""
    if mask is None or isinstance(mask, Mask):
        rule = Everyone() if mask is None else mask
        rule.check_shape(batch, queries, keys)
        return rule
    allowed = _four(mask, batch, queries, keys, of_source=of_source)
    return Given(allowed.expand(*allowed.shape[:2], queries, keys))


def at_source(mask: MaskLike, batch: int, length: int) -> Mask:
    """A mask over source tokens: which of them are real, the same for every query."""
    if mask is None or isinstance(mask, Mask):
        return at_attention(mask, batch=batch, queries=length, keys=length)
    flat = _tensor(mask)
    if flat.ndim == 2 and tuple(flat.shape) == (batch, length):  # (sentences, tokens), whatever else it fits
        square = batch == length > 1 and not isinstance(mask, BlockedPadding)
        if square and torch.equal(_allowed(flat), create_look_ahead_mask(length, flat.device)):
            raise InputError(
                "src_mask is a look-ahead mask, or means that sentences have 1, 2, 3 ... tokens; a source "
                "needs create_padding_mask(src), or mask[:, None, None] for those lengths"
            )
        flat = flat[:, None, None, :]
    allowed_BHQK = _four(flat, batch, length, length)
    if not bool((allowed_BHQK == allowed_BHQK[:, :1, :1]).all()):
        raise InputError(
            f"src_mask is {tuple(flat.shape)} and differs from query to query; expected (batch, 1, 1, "
            "length), True = real token: create_padding_mask(src)"
        )
    return mask_adapters.from_attention_mask(allowed_BHQK[:, 0, 0].expand(batch, length))


def at_target(mask: MaskLike, batch: int, length: int) -> Mask:
    """A mask over target tokens; a token that no query may attend to is padding and has no position."""
    rule = at_attention(mask, batch=batch, queries=length, keys=length)
    if not isinstance(rule, Given):
        return rule
    seen_BT = rule.allowed_BHQK.any(1).any(1).expand(batch, length)
    return rule & mask_adapters.from_attention_mask(seen_BT)


def _tensor(mask: Any) -> Tensor:
    if isinstance(mask, Blocked):
        return torch.from_numpy(mask_from_blocked(mask))
    return torch.as_tensor(mask)


def _allowed(given: Tensor) -> Tensor:
    """True = may attend."""
    if given.dtype == torch.bool:
        return given
    if given.is_floating_point() and not bool((given > 0).any()):
        # To be added: 0 / -inf. A look-ahead mask of one token is a single 0, and blocks nothing.
        mask_adapters.from_additive(given)  # refuses other numbers
        return given == 0
    if not bool(((given == 0) | (given == 1)).all()):
        raise InputError("a mask holds booleans, 0 and 1 (1 = may attend), or 0 and -inf (added to scores)")
    if not bool((given == 1).any(-1).all()):
        raise InputError(
            "a mask of numbers is read as 1 = may attend, and this one leaves a query nothing to attend to; "
            "if 1 means 'blocked', give mask == 0, otherwise mask == 1"
        )
    return given == 1


def _four(mask: Any, batch: int, queries: int, keys: int, *, of_source: bool = False) -> Tensor:
    """(1 or B, 1 or H, 1 or Q, K) of True = may attend."""
    given = _allowed(_tensor(mask))
    shape = tuple(given.shape)
    if given.ndim == 2:
        known = isinstance(mask, BlockedPadding) or (of_source and shape == (batch, keys))
        if shape == (batch, keys) and batch == queries > 1 and not known and _like_padding(given):
            raise InputError(
                f"a mask of shape {shape} for {batch} sentences of {queries} tokens: its first axis could "
                "mean either; mask[None, None] is one for all, mask[:, None, None] one per sentence"
            )
        by_query = shape[0] in (1, queries) and not known
        given = given[None, None] if by_query else given[:, None, None]
    elif given.ndim == 3:
        given = given[:, None]
    sizes = tuple(given.shape)
    fits = len(sizes) == 4 and sizes[0] in (1, batch) and sizes[2] in (1, queries) and sizes[3] == keys
    if not fits:
        raise InputError(
            f"the mask is {shape}; expected ({queries}, {keys}), ({batch}, {keys}), "
            f"({batch}, {queries}, {keys}) or ({batch}, heads, {queries}, {keys})"
        )
    return given


def _like_padding(allowed: Tensor) -> bool:
    return looks_like_padding(allowed.detach().cpu().numpy())
