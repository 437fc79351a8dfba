"""Predictions of a trace: the most likely next tokens or labels; nothing for a model without a head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..bundle import Bundle
from ..lens import AttentionKind, Trace, ablate, attention_addresses, of_ids, trace_ids

TOP_PREDICTIONS = 6


def top_predictions(trace: Trace, top: int = TOP_PREDICTIONS) -> list[dict[str, Any]]:
    """The most likely next tokens after the last one, or labels of the whole text."""
    if not trace.info.has_head:
        return []
    row = trace.answer[-1] if trace.answer.ndim > 1 else trace.answer
    probabilities = row.float().softmax(-1)
    best = probabilities.topk(min(top, len(probabilities)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    is_word = trace.answer.ndim > 1 and trace.answer.shape[-1] > 2
    labels = {i: of_ids([i], trace.tokenizer)[0].label if is_word else f"{i}" for i in best.indices.tolist()}
    return [{"id": i, "text": labels[i], "p": p} for i, p in pairs]


def without_head(bundle: Bundle, trace: Trace, kind: AttentionKind, layer: int, head: int) -> dict[str, Any]:
    """The same tokens through the model with one head ablated, and what that model generates by itself."""
    stack = "cross" if kind == "cross" else attention_addresses(bundle.model)[kind].split(".")[0]
    word = f"head:{layer}.{head}" if len(bundle.spec.towers) == 1 else f"{stack}.head:{layer}.{head}"
    ablated = replace(bundle, model=ablate(bundle.model, [word]))
    after = trace_ids(ablated.model, trace.input, tokenizer=bundle.tokenizer)
    before, output = top_predictions(trace), decoded_target(bundle, trace)
    shown = {prediction["id"] for prediction in before}
    return {
        "without": [word],
        "before": before,
        # The new probabilities of the same tokens, and the most likely token now.
        "after": [g for g in top_predictions(after, 10_000) if g["id"] in shown] + top_predictions(after)[:1],
        "change": _change(trace, after),
        "answer": output,
        "moved": decoded_target(bundle, ablated.trace(list(trace.input.ids))) if output else "",
    }


def decoded_target(bundle: Bundle, trace: Trace) -> str:
    """The target of a trace as text; empty for a model without a head."""
    tokens = [t.id for t in trace.target_tokens if not t.special and trace.info.has_head]
    return bundle.tokenizer.decode(tokens) if tokens and bundle.tokenizer else ""


def _change(before: Trace, after: Trace) -> float:
    """The largest change of a probability; for a model without a head, the relative change of its states."""
    if not before.info.has_head:
        return float((after.answer - before.answer).norm() / before.answer.norm())
    return float((after.answer.float().softmax(-1) - before.answer.float().softmax(-1)).abs().max())
