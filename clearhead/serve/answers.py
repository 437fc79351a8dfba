"""Answers in a few words: a trace in; the likeliest next words, labels, or nothing for bare states, out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..bundle import Bundle
from ..lens.change import changed
from ..lens.record import Kind
from ..lens.tokens import of_ids
from ..lens.trace import Trace, trace_ids
from ..nn.model import PairModel

TOP = 6


def guesses(trace: Trace, top: int = TOP) -> list[dict[str, Any]]:
    """At the last token, or for the whole text."""
    if not trace.about.has_head:
        return []
    row = trace.answer[-1] if trace.answer.ndim > 1 else trace.answer
    chance = row.float().softmax(-1)
    best = chance.topk(min(top, len(chance)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    is_word = trace.answer.ndim > 1 and trace.answer.shape[-1] > 2
    return [{"id": i, "text": _name(trace, i) if is_word else f"{i}", "p": p} for i, p in pairs]


def without_head(bundle: Bundle, trace: Trace, kind: Kind, layer: int, head: int) -> dict[str, Any]:
    """The same tokens through the model with one head silent, and what it would have said by itself."""
    side = {"self": "encoder.", "decoder": "decoder.", "cross": "cross."}[kind]
    word = f"{side if isinstance(bundle.model, PairModel) else ''}head:{layer}.{head}"
    silent = replace(bundle, model=changed(bundle.model, [word]))
    after = trace_ids(silent.model, trace.fed, tokenizer=bundle.tokenizer)
    same = {g["id"] for g in guesses(trace)}
    return {
        "without": [word],
        "before": guesses(trace),
        "after": [g for g in guesses(after, 10_000) if g["id"] in same] + guesses(after)[:1],
        "change": _change(trace, after),
        "answer": said(bundle, trace),
        "moved": said(bundle, silent.trace(list(trace.fed.ids))) if said(bundle, trace) else "",
    }


def said(bundle: Bundle, trace: Trace) -> str:
    """What a decoder said; nothing where it has no head to say it with."""
    tokens = [t.id for t in trace.target_tokens if not t.special and trace.about.has_head]
    return bundle.tokenizer.decode(tokens) if tokens and bundle.tokenizer else ""


def _change(before: Trace, after: Trace) -> float:
    """The largest move of a probability anywhere; of bare states the relative distance."""
    if not before.about.has_head:
        return float((after.answer - before.answer).norm() / before.answer.norm())
    return float((after.answer.float().softmax(-1) - before.answer.float().softmax(-1)).abs().max())


def _name(trace: Trace, token: int) -> str:
    return of_ids([token], trace.tokenizer)[0].label
