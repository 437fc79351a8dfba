"""Masked tokens without a vector of their own: embeddings in, rescaled embeddings out (ESM).

Shape suffixes: B batch, T tokens, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..spec import Amount, Rate, Spec
from .norm import widen


@dataclass(frozen=True, kw_only=True)
class MaskedZero(Spec):
    """Masked tokens are zero; the others are multiplied by (1 - rate) / (1 - share of masked ones) (ESM).

    As with dropout, the sum over a text is then the same however many tokens are masked.
    """

    id: Amount  # of the mask token
    rate: Rate = 0.12  # the share in training

    def rescale(self, x_BTD: Tensor, ids_BT: Tensor, segment_BT: Tensor | None) -> Tensor:
        """`segment_BT` is the number of the text that each token is in, -1 for padding; None: one text."""
        masked_BT = ids_BT == self.id
        share_BT = _share(masked_BT.to(widen(x_BTD[:0]).dtype), segment_BT)
        # A text of nothing but masks is zero: the bound only avoids 0 / 0.
        factor_BT = (1 - self.rate) / (1 - share_BT).clamp(min=1e-9)
        return x_BTD * torch.where(masked_BT, 0.0, factor_BT).to(x_BTD.dtype)[..., None]


def _share(one_BT: Tensor, segment_BT: Tensor | None) -> Tensor:
    """The mean of `one_BT` over the text that each token is in."""
    if segment_BT is None:
        return one_BT.mean(1, keepdim=True).expand_as(one_BT)
    rows, length = segment_BT.shape
    text_BT = torch.where(segment_BT >= 0, segment_BT, length)  # padding is a further text
    empty = one_BT.new_zeros(rows, length + 1)
    total = empty.scatter_add(1, text_BT, torch.ones_like(one_BT)).gather(1, text_BT)
    return empty.scatter_add(1, text_BT, one_BT).gather(1, text_BT) / total
