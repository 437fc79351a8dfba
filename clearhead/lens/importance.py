"""Head importance by ablation: a trace in; how far the answer moves when each head is silent, (L, H), out.

All heads of a layer are tried in one pass: the text stands in as many rows as there are heads, and each row
misses another one. Shape suffixes: L layers, H heads, T tokens, V answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..nn import Tap
from .record import AttentionKind
from .trace_data import TraceData


@torch.no_grad()
def head_importance(
    trace: TraceData, kind: AttentionKind = "self", progress: Callable[[int, int], None] | None = None
) -> Tensor:
    """(L, H) in bits: the mean divergence of the answers with the head from those without it.

    For a model without a head (the states are its answer) it is the relative distance of the states.
    """
    model, heads = trace.needs_model("head importance"), trace.heads(kind)
    rows = []
    for layer in range(trace.layers(kind)):
        address = trace.address(kind, layer)

        def silence(_: str, x_BHQE: Tensor) -> Tensor:
            x = x_BHQE.clone()
            at = torch.arange(len(x))
            x[at, at] = 0
            return x

        inputs, options = trace.input.arguments(trace.answer.device, rows=heads)
        answers = model(*inputs, **options, tap=Tap(f"{address}.mix", silence))
        states = model.head is None
        rows.append(torch.stack([_moved(trace.answer, answer, states=states) for answer in answers]))
        if progress:
            progress(layer + 1, trace.layers(kind))
    return torch.stack(rows)


def _moved(before: Tensor, after: Tensor, *, states: bool) -> Tensor:
    if states:
        apart: Tensor = torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(before)
        return apart
    return divergence(before, after).mean()


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """Kullback-Leibler, in bits, of two answers (..., V): 0 where nothing moved."""
    one, two = before.double().log_softmax(-1), after.double().log_softmax(-1)
    bits: Tensor = (one.exp() * (one - two)).sum(-1) / math.log(2)
    return bits.clamp(min=0).float()
