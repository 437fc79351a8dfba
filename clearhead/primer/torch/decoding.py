"""Greedy decoding: a model and source ids in, target ids out."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import InputError
from ...generate import EndTokens, Prompt, generate
from .masks import MaskLike, at_source
from .model import Transformer


@torch.no_grad()
def greedy_decode(
    model: Transformer,
    src: Tensor,
    src_mask: MaskLike = None,
    max_len: int = 64,
    start_symbol: int = 1,
    end_symbol: int = 2,
    *,
    pad_idx: int = 0,
) -> Tensor:
    """(B, up to max_len): the start symbol, the generated ids, the end symbol if it came, then padding.

    Without `src_mask` the padding of `src` is found by `pad_idx`. Each sentence of the batch ends
    independently, and the model is left in the mode it was in.
    """
    if max_len < 2:
        raise InputError(f"max_len is {max_len}; expected 2 or more: the start symbol counts")
    real = at_source(src != pad_idx if src_mask is None else src_mask, *src.shape).segments()
    mask = torch.ones_like(src) if real is None else real >= 0
    limit, training = max_len - 1, model.training
    model.eval()
    begin = Prompt(src, mask, torch.full_like(src[:, :1], start_symbol))
    run = generate(model.inner, begin, stops=(EndTokens((end_symbol,)),), limit=limit)
    rows = [[start_symbol, *best.ids] for best, *_ in run.finish()]
    model.train(training)
    width = max(map(len, rows))
    return torch.tensor([row + [pad_idx] * (width - len(row)) for row in rows], device=src.device)
