"""Cost: a spec in; parameters, operations and cache out, counted on torch's meta device without memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from ..nn.model import Model, Pair
from .describe import cache_values


@dataclass(frozen=True)
class Cost:
    parameters: int
    flops: int  # of one forward pass over `length` tokens (source and target, where there are two)
    length: int
    cache: int  # numbers kept per decoded token


def cost(spec: Model, length: int = 128) -> Cost:
    """Exact: the operations are those torch counts for this very model."""
    model = spec.empty()
    ids = torch.zeros(1, length, dtype=torch.long, device="meta")
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        _ = model(ids, ids) if isinstance(spec, Pair) else model(ids)
    parameters = sum(p.numel() for p in model.parameters())
    return Cost(parameters, counter.get_total_flops(), length, cache_values(spec))
