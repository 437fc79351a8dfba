"""Answers of two traces of one text: top predictions of both in words, and the distance as a number."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .importance import divergence
from .tokens import of_ids
from .trace_data import TraceData


@dataclass(frozen=True)
class TopPredictions:
    """The most likely tokens or labels with their probabilities, and the generated text, if there is one."""

    best: list[tuple[str, float]]
    said: str | None = None  # the generated text; the name is a key of `clearhead look --json`


@dataclass(frozen=True)
class AnswerChange:
    before: TopPredictions
    after: TopPredictions
    moved: float  # mean KL divergence over the tokens in bits; of hidden states, their relative distance
    unit: str


def answer_of(trace: TraceData, names: dict[int, str] | None = None, top: int = 5) -> TopPredictions:
    """Predictions for the next token, the first masked token or the text's label; empty without a head."""
    row = _logits(trace)
    if row is None:
        return TopPredictions([])
    best = row.float().softmax(-1).topk(min(top, row.shape[-1]))
    pairs = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    if trace.answer.ndim == 1:
        return TopPredictions([((names or {}).get(i, f"label {i}"), p) for i, p in pairs])
    text = "".join(token.text for token in trace.target_tokens if not token.special) or None
    return TopPredictions([(of_ids([i], trace.tokenizer)[0].label, p) for i, p in pairs], text)


def _logits(trace: TraceData) -> Tensor | None:
    if not trace.info.has_head:
        return None
    if trace.info.generates:
        return trace.answer[-1]
    if trace.answer.ndim == 1:
        return trace.answer
    mask = trace.tokenizer.mask if trace.tokenizer is not None else None
    masked = [i for i, token in enumerate(trace.tokens) if mask is not None and token.id == mask.id]
    return trace.answer[masked[0]] if masked else None


def compare_answers(before: TraceData, after: TraceData, names: dict[int, str] | None = None) -> AnswerChange:
    """Compare two traces of the same tokens, such as those of a model with and without a head."""
    predictions = answer_of(before, names), answer_of(after, names)
    if not before.info.has_head:
        moved = float((after.answer - before.answer).norm() / before.answer.norm())
        return AnswerChange(*predictions, moved, "of the length of the states")
    length = min(len(before.answer), len(after.answer)) if before.answer.ndim > 1 else None
    moved = float(divergence(before.answer[:length], after.answer[:length]).mean())
    return AnswerChange(*predictions, moved, "bits")
