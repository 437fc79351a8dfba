"""Greedy decoding: the likeliest token, again and again, until each row has ended.

Shape suffixes: B batch, T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..nn.context import States
from ..nn.model import PairModel


@torch.no_grad()
def answer(
    model: PairModel, source_BT: Tensor, mask_BT: Tensor, *, start: int, end: int, limit: int
) -> list[list[int]]:
    """What an encoder-decoder says to each source: ids without start and end, at most `limit` of them.

    The source is encoded once, and each step computes one token and one row of the vocabulary product.
    """
    memory, cache = model.encode(source_BT, mask_BT), model.cache(capacity=limit)
    rows = len(source_BT)
    new_B1 = torch.full((rows, 1), start, device=source_BT.device)
    said: list[list[int]] = [[] for _ in range(rows)]
    going = [True] * rows
    for _ in range(limit):
        states = model.decode(new_B1, memory, cache=cache)
        new_B1 = model.read(States(states.x_BTD[:, -1:])).argmax(-1)
        for i, token in enumerate(new_B1[:, 0].tolist()):
            going[i] = going[i] and token != end
            if going[i]:
                said[i].append(token)
        if not any(going):
            break
    return said
