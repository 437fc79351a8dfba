"""Softmax attention in training: queries, keys, values and a mask in, weighted values out.

It is torch's fused call, but for two cases on a CPU:

    dropout     there is no fused call with dropout; the formula below is faster than torch's own
    bfloat16    of short texts: the fused backward pass takes up to six times as long as in float32

Shape suffixes: B batch, H heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...device import has_fast_bfloat16
from ..layers import FAST_DROPOUT, apply_dropout
from ..norm import widen

SHORT = 256  # keys up to which attention in bfloat16 is trained faster in float32


def training_attention(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    mask: Tensor | None,
    *,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float,
    enable_gqa: bool = False,
) -> Tensor:
    """As torch's `scaled_dot_product_attention`. A query that may attend to nothing gets zeros."""
    device = q_BHQE.device.type
    if dropout_p and device not in FAST_DROPOUT:
        with torch.autocast("cpu", enabled=False):
            return _with_dropout(q_BHQE, k_BHKE, v_BHKE, mask, scale, dropout_p, is_causal=is_causal)
    settings: dict[str, Any] = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    if device == "cpu" and v_BHKE.dtype == torch.bfloat16 and k_BHKE.shape[2] <= SHORT:
        bias = mask if mask is None or mask.dtype == torch.bool else widen(mask)
        with torch.autocast("cpu", enabled=False):
            q, k, v = widen(q_BHQE), widen(k_BHKE), widen(v_BHKE)
            return F.scaled_dot_product_attention(q, k, v, bias, **settings).type_as(v_BHKE)
    return F.scaled_dot_product_attention(q_BHQE, k_BHKE, v_BHKE, mask, dropout_p=dropout_p, **settings)


def _with_dropout(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, p: float, *, is_causal: bool
) -> Tensor:
    """dropout(softmax(q k' * scale + bias)) v, in float32, but for the last product of a call in bfloat16 if
    the CPU is fast in it.
    """
    heads, dtype = q.shape[1], v.dtype
    if k.shape[1] != heads:
        k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (k, v))
    scores_BHQK = (widen(q) * scale) @ widen(k).mT
    bias, blocked_BHQ1 = _bias(scores_BHQK, mask, is_causal=is_causal)
    scores_BHQK = scores_BHQK if bias is None else scores_BHQK + bias
    v = v if dtype == torch.bfloat16 and has_fast_bfloat16() else widen(v)
    mixed = (apply_dropout(scores_BHQK.softmax(dim=-1).type_as(v), p) @ v).to(dtype)
    return mixed if blocked_BHQ1 is None else mixed.masked_fill(blocked_BHQ1, 0.0)


def _bias(
    scores_BHQK: Tensor, mask: Tensor | None, *, is_causal: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The mask as a bias that can be added, and flags of the queries that may attend to nothing, if any."""
    if is_causal:
        return scores_BHQK.new_full(scores_BHQK.shape[-2:], float("-inf")).triu(1), None
    if mask is None:
        return None, None
    if mask.dtype == torch.bool:
        mask = scores_BHQK.new_zeros(mask.shape).masked_fill(~mask, float("-inf"))
    blocked_BHQ1 = mask.isneginf().all(dim=-1, keepdim=True)
    if not blocked_BHQ1.any():
        return mask, None
    # The softmax of -inf alone is NaN, forwards and backwards. From a finite number it is any weights: the
    # output of such a query is set to zero in the end.
    return mask.clamp(min=torch.finfo(mask.dtype).min / 2), blocked_BHQ1
