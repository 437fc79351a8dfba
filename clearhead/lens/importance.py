"""Head importance by ablation: a trace in; how much the answer changes without each head, (L, H), out.

One forward pass ablates all heads of a layer: the text is repeated in one row per head, and each row lacks
another head. Shape suffixes: L layers, H heads, T tokens, V vocabulary.
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
    """(L, H) in bits: the mean KL divergence between the predictions with and without the head.

    For a model without an output head it is the relative distance of the hidden states.
    """
    model, heads = trace.needs_model("head importance"), trace.heads(kind)
    rows = []
    for layer in range(trace.layers(kind)):
        address = trace.address(kind, layer)

        def zero_own_head(_: str, x_BHQE: Tensor) -> Tensor:
            x = x_BHQE.clone()
            row = torch.arange(len(x))
            x[row, row] = 0  # row i is without head i
            return x

        inputs, options = trace.input.arguments(trace.answer.device, rows=heads)
        answers = model(*inputs, **options, tap=Tap(f"{address}.mix", zero_own_head))
        change = _relative_distance if model.head is None else divergence
        rows.append(torch.stack([change(trace.answer, answer).mean() for answer in answers]))
        if progress:
            progress(layer + 1, trace.layers(kind))
    return torch.stack(rows)


def _relative_distance(before: Tensor, after: Tensor) -> Tensor:
    distance: Tensor = torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(before)
    return distance


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL divergence in bits of the predictions of two tensors of logits (..., V); 0 where they are equal."""
    p, q = before.double().log_softmax(-1), after.double().log_softmax(-1)
    bits: Tensor = (p.exp() * (p - q)).sum(-1) / math.log(2)
    return bits.clamp(min=0).float()
