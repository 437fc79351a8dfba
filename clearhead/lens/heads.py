"""What heads do: the weights of a trace in, a few telling numbers per head out. All are (L, H).

    entropy     bits: 0 looks at one token, log2(K) at all alike        previous  weight on the token before
    first       weight on the first token, the sink (Xiao 2023)         itself    weight on oneself
    distance    how far away, in tokens, the mean look goes
    induction   weight on what followed the last time this token was there (Olsson 2022)

Shape suffixes: L layers, H heads, Q queries, K keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..nn import TransformerModel
from .record import AttentionKind, TraceInput, record_forward
from .trace_data import TraceData

CAVEAT = (
    "Attention shows where a head looks, not why the model answers as it does: high weights can be idle and "
    "low ones decisive. Switch a head off (--without {}) and see whether the answer moves."
)
HEAD_ROLES = {"previous": "previous", "first": "sink", "itself": "itself", "induction": "induction"}
CLEAR = 0.4  # the mean weight from which a head is called by what it looks at


def switch(trace: TraceData, kind: AttentionKind, layer: int | str, head: int | str) -> str:
    """How `--without` calls a head: with its side, where there are two stacks."""
    side = {"self": "encoder."}.get(kind, f"{kind}.") if len(trace.kinds) > 1 else ""
    return f"{side}head:{layer}.{head}"


@dataclass(frozen=True, eq=False)
class HeadScores:
    entropy: Tensor
    distance: Tensor
    previous: Tensor
    first: Tensor
    itself: Tensor
    induction: Tensor  # NaN where no token comes twice

    def role(self, layer: int, head: int) -> str:
        """A head in one word, if it is clear what it does."""
        scores = {name: float(getattr(self, name)[layer, head]) for name in HEAD_ROLES}
        name = max(scores, key=lambda n: -1.0 if math.isnan(scores[n]) else scores[n])
        return HEAD_ROLES[name] if scores[name] >= CLEAR else ""


def head_scores(trace: TraceData, kind: AttentionKind = "self") -> HeadScores:
    """Of one kind of attention; between two texts there is no previous token and no distance: NaN."""
    rows = [_scores(trace.attention(kind, layer), _ids(trace, kind)) for layer in range(trace.layers(kind))]
    return HeadScores(*(torch.stack(column) for column in zip(*rows, strict=True)))


def _ids(trace: TraceData, kind: AttentionKind) -> list[int] | None:
    return None if kind == "cross" else [token.id for token in trace.sides(kind)[0]]


def _scores(weights_HQK: Tensor, ids: list[int] | None) -> tuple[Tensor, ...]:
    heads, queries, keys = weights_HQK.shape
    logs = torch.where(weights_HQK > 0, weights_HQK.log2(), 0.0)
    entropy = -(weights_HQK * logs).sum(-1).mean(-1)
    first = weights_HQK[:, 1:, 0].mean(-1) if queries > 1 else torch.full((heads,), math.nan)
    if ids is None:
        nothing = torch.full((heads,), math.nan)
        return entropy, nothing, nothing, first, nothing, nothing
    away = (torch.arange(queries)[:, None] - torch.arange(keys)).abs()
    distance = (weights_HQK * away).sum(-1).mean(-1)
    previous = weights_HQK.diagonal(-1, 1, 2).mean(-1) if queries > 1 else torch.full((heads,), math.nan)
    return (
        entropy,
        distance,
        previous,
        first,
        weights_HQK.diagonal(0, 1, 2).mean(-1),
        induction(weights_HQK, ids),
    )


def induction(weights_HQK: Tensor, ids: list[int]) -> Tensor:
    """(H,): for every token that was there before, the weight on the token after that place."""
    last: dict[int, int] = {}
    looks = []
    for q, token in enumerate(ids):
        if token in last and last[token] + 1 < q:
            looks.append(weights_HQK[:, q, last[token] + 1])
        last[token] = q
    return torch.stack(looks).mean(0) if looks else torch.full((len(weights_HQK),), math.nan)


def induction_test(model: TransformerModel, vocab: int, length: int = 24, seed: int = 0) -> Tensor:
    """(L, H) on the standard test: random tokens, and then the same ones again."""
    key = torch.Generator().manual_seed(seed)
    once = torch.randperm(vocab, generator=key)[:length].tolist()
    seen = record_forward(model, TraceInput(once + once, []))
    scores = []
    for layer in range(seen.depth("tower")):
        weights_HQK = seen.pattern(f"tower.blocks.{layer}.attn")
        rows = torch.arange(length, 2 * length - 1)
        scores.append(weights_HQK[:, rows + 1, rows + 2 - length].mean(-1))
    return torch.stack(scores)
