"""Scores of attention heads: the weights of a trace in; six numbers per head out. All are (L, H).

    entropy     in bits: 0 if all weight is on one token, log2(K) if it is uniform
    distance    mean distance in tokens between the query and the keys it attends to
    previous    weight on the previous token
    first       weight on the first token, the attention sink (Xiao 2023)
    itself      weight on the query's own token
    induction   weight on the token after the last occurrence of the query's token (Olsson 2022)

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
    "Attention weights show where a head attends, not why the model answers as it does: high weights can "
    "have no effect and low ones can be decisive. Ablate a head (--without {}) and see whether the answer "
    "changes."
)
HEAD_ROLES = {"previous": "previous", "first": "sink", "itself": "itself", "induction": "induction"}
ROLE_THRESHOLD = 0.4  # the mean weight from which a head is named after its role


def switch(trace: TraceData, kind: AttentionKind, layer: int | str, head: int | str) -> str:
    """The name of a head for `--without`; with its side in a model of two stacks."""
    side = {"self": "encoder."}.get(kind, f"{kind}.") if len(trace.kinds) > 1 else ""
    return f"{side}head:{layer}.{head}"


@dataclass(frozen=True, eq=False)
class HeadScores:
    entropy: Tensor
    distance: Tensor
    previous: Tensor
    first: Tensor
    itself: Tensor
    induction: Tensor  # NaN if no token occurs twice

    def role(self, layer: int, head: int) -> str:
        """The role of a head in one word, or "" if none is clear."""
        scores = {name: float(getattr(self, name)[layer, head]) for name in HEAD_ROLES}
        name = max(scores, key=lambda n: -1.0 if math.isnan(scores[n]) else scores[n])
        return HEAD_ROLES[name] if scores[name] >= ROLE_THRESHOLD else ""


def head_scores(trace: TraceData, kind: AttentionKind = "self") -> HeadScores:
    """The scores for one kind of attention.

    In cross-attention, and between pooled tokens, those that compare positions are NaN.
    """
    ids = None if kind == "cross" else [token.id for token in trace.sides(kind)[0]]
    rows = []
    for layer in range(trace.layers(kind)):
        if trace.is_pooled(kind, layer):
            rows.append(_scores(trace.call(kind, layer).pattern()[0].float(), None))
        else:
            rows.append(_scores(trace.attention(kind, layer), ids))
    return HeadScores(*(torch.stack(column) for column in zip(*rows, strict=True)))


def _scores(weights_HQK: Tensor, ids: list[int] | None) -> tuple[Tensor, ...]:
    heads, queries, keys = weights_HQK.shape
    logs = torch.where(weights_HQK > 0, weights_HQK.log2(), 0.0)
    entropy = -(weights_HQK * logs).sum(-1).mean(-1)
    first = weights_HQK[:, 1:, 0].mean(-1) if queries > 1 else torch.full((heads,), math.nan)
    if ids is None:
        nan = torch.full((heads,), math.nan)
        return entropy, nan, nan, first, nan, nan
    tokens_apart = (torch.arange(queries)[:, None] - torch.arange(keys)).abs()
    distance = (weights_HQK * tokens_apart).sum(-1).mean(-1)
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
    """(H,): the mean weight of repeated tokens on the token after their previous occurrence."""
    last: dict[int, int] = {}  # token -> its last position so far
    weights = []
    for q, token in enumerate(ids):
        if token in last and last[token] + 1 < q:
            weights.append(weights_HQK[:, q, last[token] + 1])
        last[token] = q
    return torch.stack(weights).mean(0) if weights else torch.full((len(weights_HQK),), math.nan)


def induction_test(model: TransformerModel, vocab: int, length: int = 24, seed: int = 0) -> Tensor:
    """(L, H): induction scores on the standard test, a random sequence of tokens repeated once."""
    key = torch.Generator().manual_seed(seed)
    once = torch.randperm(vocab, generator=key)[:length].tolist()
    record = record_forward(model, TraceInput(once + once, []))
    scores = []
    for layer in range(record.depth("tower")):
        weights_HQK = record.pattern(f"tower.blocks.{layer}.attn")
        if f"tower.blocks.{layer}.attn" in record.groups:  # between groups there is no single next token
            scores.append(torch.full((len(weights_HQK),), math.nan))
            continue
        rows = torch.arange(length, 2 * length - 1)
        scores.append(weights_HQK[:, rows + 1, rows + 2 - length].mean(-1))
    return torch.stack(scores)
