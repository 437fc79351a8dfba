"""Mask adapters: mask tensors of other libraries in, `Mask` values out. The name states what a 1 means.

from_attention_mask(mask_BT)          1 = real token, as Hugging Face's attention_mask   -> Padding
from_padding_mask(mask_BT)            1 = padding, as torch's key_padding_mask           -> Padding
from_global_attention_mask(mask_BT)   1 = global token, as global_attention_mask         -> Everyone | Globals
from_allowed(mask)     True = may attend, as torch's SDPA; (Q,K), (B,Q,K) or (B,H,Q,K)   -> Given
from_blocked(mask)     1 = may not attend, as torch's MultiheadAttention; same shapes    -> Given
from_additive(mask)    0 = may attend, -inf = may not; same shapes                       -> Given
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from .masks import Everyone, Given, Globals, Mask, Padding


def from_attention_mask(mask_BT: Tensor) -> Mask:
    """1 or True = real token. A batch without padding needs no rule at all."""
    flags_BT = _flags("from_attention_mask", mask_BT)
    if flags_BT.ndim != 2:
        raise InputError(
            f"from_attention_mask() takes (batch, length), given {tuple(mask_BT.shape)}; see from_allowed()"
        )
    return Everyone() if bool(flags_BT.all()) else Padding(flags_BT)


def from_padding_mask(mask_BT: Tensor) -> Mask:
    """1 or True = padding."""
    return from_attention_mask(~_flags("from_padding_mask", mask_BT))


def from_global_attention_mask(mask_BT: Tensor) -> Mask:
    """1 or True = attends to and is attended to by all tokens (Longformer); combine it with others by `&`."""
    return Everyone() | Globals(_flags("from_global_attention_mask", mask_BT))


def from_allowed(mask: Tensor) -> Mask:
    """1 or True = may attend."""
    return Given(_four(_flags("from_allowed", mask)))


def from_blocked(mask: Tensor) -> Mask:
    """1 or True = may not attend: the look-ahead mask of many tutorials."""
    return Given(_four(~_flags("from_blocked", mask)))


def from_additive(mask: Tensor) -> Mask:
    """A mask that is added to the scores: 0 where one may attend, -inf (or below -1e4) where not."""
    if not mask.is_floating_point() or not bool(((mask == 0) | (mask < -1e4)).all()):
        raise InputError(
            "from_additive() takes a float mask of 0 (may attend) and -inf (may not); "
            "for a mask of ones and zeros use from_allowed() or from_blocked()"
        )
    return Given(_four(mask == 0))


def from_model_mask(mask: Tensor, batch: int, length: int, past_BK: Tensor | None) -> Mask:
    """The tensor a model is called with: (batch, length), 1 = real token, as Hugging Face's attention_mask.

    `past_BK` flags the cached tokens that are real; the tensor may cover the new tokens alone or all of them.
    """
    past = 0 if past_BK is None else past_BK.shape[1]
    if mask.ndim != 2:
        raise InputError(
            f"a mask tensor given to a model is (batch, length) with 1 = real token; given "
            f"{tuple(mask.shape)}: pass mask_adapters.from_allowed(mask), from_blocked(mask) or "
            f"from_additive(mask)"
        )
    flags_BT = _flags("from_attention_mask", mask)
    if tuple(flags_BT.shape) not in ((batch, length), (batch, past + length)):
        also = f" or ({batch}, {past + length})" if past else ""
        raise InputError(
            f"the mask is {tuple(mask.shape)}, expected ({batch}, {length}){also}: batch, length"
        )
    if past_BK is not None and flags_BT.shape[1] == length:
        flags_BT = torch.cat([past_BK, flags_BT], dim=1)
    return from_attention_mask(flags_BT)


def _flags(adapter: str, mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return mask
    if not bool(((mask == 0) | (mask == 1)).all()):
        negative = bool((mask < 0).any())
        hint = "it holds -inf: use from_additive()" if negative else "see clearhead.nn.mask_adapters"
        raise InputError(f"{adapter}() takes a mask of ones and zeros; {hint}")
    return mask == 1


def _four(mask: Tensor) -> Tensor:
    """(Q,K), (B,Q,K), (B,H,Q,K) -> (1 or B, 1 or H, Q, K)."""
    if mask.ndim not in (2, 3, 4):
        raise InputError(
            f"an attention mask is (queries, keys), (batch, queries, keys) or (batch, heads, queries, "
            f"keys); given {tuple(mask.shape)}"
        )
    return mask if mask.ndim == 4 else mask[:, None] if mask.ndim == 3 else mask[None, None]
