"""Mask doors: other people's mask tensors in, our rules out. The name of the door says what the ones mean.

real(mask_BT)       1 = real token, as Hugging Face's attention_mask     -> Padding
padded(mask_BT)     1 = padding                                          -> Padding
globally(mask_BT)   1 = global token, as global_attention_mask           -> Everyone | Globals
allowed(mask)       True = may attend; (Q,K), (B,Q,K) or (B,H,Q,K)       -> Given
blocked(mask)       1 = may not attend; the same shapes                  -> Given
additive(mask)      0 = may attend, -inf = may not; the same shapes      -> Given
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from .masks import Everyone, Given, Globals, Mask, Padding, stands_alone


def real(mask_BT: Tensor) -> Mask:
    """1 or True = real token. A batch without padding needs no rule at all."""
    flags_BT = _flags("real", mask_BT)
    if flags_BT.ndim != 2:
        raise InputError(f"real() takes (batch, length), given {tuple(mask_BT.shape)}; see allowed()")
    return Everyone() if bool(flags_BT.all()) else Padding(flags_BT)


def padded(mask_BT: Tensor) -> Mask:
    """1 or True = padding."""
    return real(~_flags("padded", mask_BT))


def globally(mask_BT: Tensor) -> Mask:
    """1 or True = sees everyone and is seen by everyone (Longformer); join it to others with `&`."""
    return Everyone() | Globals(_flags("globally", mask_BT))


def allowed(mask: Tensor) -> Mask:
    """1 or True = may attend."""
    return Given(_four(_flags("allowed", mask)))


def blocked(mask: Tensor) -> Mask:
    """1 or True = may not attend: the look-ahead mask of many tutorials."""
    return Given(_four(~_flags("blocked", mask)))


def additive(mask: Tensor) -> Mask:
    """What others add to the scores: 0 where one may attend, -inf (or a number below -1e4) where not."""
    if not mask.is_floating_point() or not bool(((mask == 0) | (mask < -1e4)).all()):
        raise InputError(
            "additive() takes a float mask of 0 (may attend) and -inf (may not); "
            "for a mask of ones and zeros use allowed() or blocked()"
        )
    return Given(_four(mask == 0))


def at_model(mask: Mask | Tensor | None, batch: int, length: int, past_BK: Tensor | None) -> Mask:
    """What stands at a model's door: a rule, or a (batch, length) tensor with 1 = real token, or nothing.

    `past_BK` flags the cached tokens that are real; a tensor may speak of the new tokens alone or of all.
    """
    past = 0 if past_BK is None else past_BK.shape[1]
    if isinstance(mask, Tensor):
        if mask.ndim != 2:
            raise InputError(
                f"a mask tensor at a model's door is (batch, length) with 1 = real token; given "
                f"{tuple(mask.shape)}: pass doors.allowed(mask), blocked(mask) or additive(mask)"
            )
        flags_BT = _flags("real", mask)
        if tuple(flags_BT.shape) not in ((batch, length), (batch, past + length)):
            also = f" or ({batch}, {past + length})" if past else ""
            raise InputError(
                f"the mask is {tuple(mask.shape)}, expected ({batch}, {length}){also}: batch, length"
            )
        if past_BK is not None and flags_BT.shape[1] == length:
            flags_BT = torch.cat([past_BK, flags_BT], dim=1)
        return real(flags_BT)
    rule = Everyone() if mask is None else mask
    if stands_alone(rule):
        raise InputError(
            "Global alone lets nobody see a neighbour; write Everyone() | Global(...) or doors.globally(mask)"
        )
    rule.fit(batch, past + length, past + length)
    if past_BK is None or bool(past_BK.all()):
        return rule
    new_BT = past_BK.new_ones(batch, length)
    return rule & Padding(torch.cat([past_BK, new_BT], dim=1))


def _flags(door: str, mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return mask
    if not bool(((mask == 0) | (mask == 1)).all()):
        hint = "it holds -inf: use additive()" if bool((mask < 0).any()) else "see clearhead.nn.doors"
        raise InputError(f"{door}() takes a mask of ones and zeros; {hint}")
    return mask == 1


def _four(mask: Tensor) -> Tensor:
    """(Q,K), (B,Q,K), (B,H,Q,K) -> (1 or B, 1 or H, Q, K)."""
    if mask.ndim not in (2, 3, 4):
        raise InputError(
            f"an attention mask is (queries, keys), (batch, queries, keys) or (batch, heads, queries, "
            f"keys); given {tuple(mask.shape)}"
        )
    return mask if mask.ndim == 4 else mask[:, None] if mask.ndim == 3 else mask[None, None]
