"""Alignment: the trace of a translator in; which source token each said token looked at out.

A decoder's row predicts the token after it, so a row is named by what it made the model say.
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
    target: list[Token]  # the last one is what the model would say next: the end, if it was done
    source: list[Token]
    layer: int

    @property
    def links(self) -> list[tuple[int, int, float]]:
        """(target, source, weight): for each target token the source token it looked at most."""
        best = self.weights_QK.max(-1)
        return [(q, int(k), float(w)) for q, (w, k) in enumerate(zip(*best, strict=True))]


def alignment(trace: TraceData, layer: int | None = None, head: int | None = None) -> Alignment:
    """Heads taken together unless one is named; without a layer, the one that looks most sharply."""
    if "cross" not in trace.kinds:
        raise InputError("an alignment needs cross-attention: a model with an encoder and a decoder")
    if layer is None:
        layer = int(head_scores(trace, "cross").entropy.mean(-1).argmin())
    weights = trace.attention("cross", layer, head)
    next_id = int(trace.answer[-1].argmax())
    target = [*trace.target_tokens[1:], *of_ids([next_id], trace.tokenizer)]
    together = weights if head is not None else weights.mean(0)
    return Alignment(together, target, trace.tokens, layer % trace.layers("cross"))
