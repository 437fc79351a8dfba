"""Alignment: the trace of an encoder-decoder in; the source token that each target token attends to out.

A decoder row predicts the next token, so each row is labelled with the token it predicts.
Shape suffixes: H heads, Q target tokens, K source tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import InputError
from .heads import head_scores
from .tokens import Token, of_ids
from .trace_data import TraceData


@dataclass(frozen=True, eq=False)
class Alignment:
    weights_QK: Tensor
    target: list[Token]  # the last one is the predicted next token, usually the end token
    source: list[Token]
    layer: int

    @property
    def links(self) -> list[tuple[int, int, float]]:
        """(target, source, weight): for each target token the source token with the largest weight."""
        best = self.weights_QK.max(-1)
        return [(q, int(k), float(w)) for q, (w, k) in enumerate(zip(*best, strict=True))]


def alignment(trace: TraceData, layer: int | None = None, head: int | None = None) -> Alignment:
    """The mean over the heads unless one is given; without a layer, the one with the lowest entropy."""
    if "cross" not in trace.kinds:
        raise InputError("an alignment needs cross-attention: a model with an encoder and a decoder")
    if layer is None:
        layer = int(head_scores(trace, "cross").entropy.mean(-1).argmin())
    weights = trace.attention("cross", layer, head)
    next_id = int(trace.answer[-1].argmax())
    target = [*trace.target_tokens[1:], *of_ids([next_id], trace.tokenizer)]
    weights_QK = weights if head is not None else weights.mean(0)
    return Alignment(weights_QK, target, trace.tokens, layer % trace.layers("cross"))
