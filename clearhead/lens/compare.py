"""Before and after: two traces of one text in; how the answer moved out, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .importance import divergence
from .tokens import of_ids
from .trace_data import TraceData


@dataclass(frozen=True)
class TopPredictions:
    """What a person asks a model for: the likeliest words or labels with their chances, or what was said."""

    best: list[tuple[str, float]]
    said: str | None = None


@dataclass(frozen=True)
class Comparison:
    before: TopPredictions
    after: TopPredictions
    moved: float  # bits, the mean over all tokens; of states the relative distance
    unit: str


def answer_of(trace: TraceData, names: dict[int, str] | None = None, top: int = 5) -> TopPredictions:
    """The next token of a writer, the word behind a mask, the label of a text; nothing for bare states."""
    row = _row(trace)
    if row is None:
        return TopPredictions([])
    best = row.float().softmax(-1).topk(min(top, row.shape[-1]))
    found = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    if trace.answer.ndim == 1:
        return TopPredictions([((names or {}).get(i, f"label {i}"), p) for i, p in found])
    text = "".join(token.text for token in trace.target_tokens if not token.special) or None
    return TopPredictions([(of_ids([i], trace.tokenizer)[0].label, p) for i, p in found], text)


def _row(trace: TraceData) -> Tensor | None:
    if not trace.info.has_head:
        return None
    if trace.info.generates:
        return trace.answer[-1]
    if trace.answer.ndim == 1:
        return trace.answer
    mask = trace.tokenizer.mask if trace.tokenizer is not None else None
    masked = [i for i, token in enumerate(trace.tokens) if mask is not None and token.id == mask.id]
    return trace.answer[masked[0]] if masked else None


def compare(before: TraceData, after: TraceData, names: dict[int, str] | None = None) -> Comparison:
    """`after` must be of the same tokens; what a changed model would say by itself is another trace."""
    one, two = answer_of(before, names), answer_of(after, names)
    if not before.info.has_head:
        moved = float((after.answer - before.answer).norm() / before.answer.norm())
        return Comparison(one, two, moved, "of the length of the states")
    length = min(len(before.answer), len(after.answer)) if before.answer.ndim > 1 else None
    moved = float(divergence(before.answer[:length], after.answer[:length]).mean())
    return Comparison(one, two, moved, "bits")
