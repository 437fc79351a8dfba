"""Frames: the trace of a generated text in; one frame per generated token out.

A causal model computes the same for a whole text at once as while generating it token by token, so one
forward pass holds every frame, one per row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .record import AttentionKind
from .tokens import Token, of_ids
from .trace_data import TraceData


@dataclass(frozen=True, eq=False)
class Frame:
    step: int  # from 0
    row: int  # of the decoder's attention
    token: Token  # what was generated
    probability: float
    candidates: list[tuple[str, int, float]]  # label, id, probability; most likely first
    trace: TraceData

    def attention(
        self, kind: AttentionKind | None = None, layer: int = -1, head: int | None = None
    ) -> Tensor:
        """Where the model attended when it generated this: (K,) of one head, or (H, K)."""
        kind = kind or self.trace.kinds[-1]
        rows = self.trace.attention(kind, layer, head)
        return rows[..., self.row, : self.row + 1 if kind != "cross" else rows.shape[-1]]


def frames(trace: TraceData, top: int = 5) -> list[Frame]:
    tokens = trace.target_tokens or trace.tokens
    if not trace.info.generates:
        raise InputError("frames need a model that generates text; this one does not")
    result = []
    # Row t predicts token t + 1, so the first generated token belongs to the last row of the prompt.
    probabilities = trace.answer[trace.input.prompt - 1 :].float().softmax(-1)
    for step, row in enumerate(range(trace.input.prompt - 1, len(tokens) - 1)):
        best = torch.topk(probabilities[step], min(top, probabilities.shape[-1]))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        candidates = [(of_ids([i], trace.tokenizer)[0].label, i, p) for i, p in pairs]
        token = tokens[row + 1]
        result.append(Frame(step, row, token, float(probabilities[step, token.id]), candidates, trace))
    return result
