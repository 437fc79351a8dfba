"""Extractive question answering: question and context in; the answer span, exact match and F1 out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..data import IGNORE_INDEX
from ..errors import InputError
from ..nn import TransformerModel
from .bucketed import BucketedTask, pad_ids, padding_mask, segment_types
from .losses import Smoothing, class_loss
from .metrics import answer_scores
from .outcomes import Evaluation, ExampleOutcome, class_losses, mean_loss
from .task import Better

MAX_ANSWER_TOKENS = 30  # tokens of an answer


@dataclass(frozen=True)
class QAExample:
    """A question beside a part of its context; a long context is several examples of one `question`.

    `spans` are the character offsets of context tokens (None for others); the answer is tokens `first` to
    `last`, or IGNORE_INDEX twice if it lies in another part.
    """

    ids: Sequence[int]
    types: Sequence[int] | None
    spans: Sequence[tuple[int, int] | None]
    context: str
    answers: Sequence[str]
    first: int
    last: int
    question: int | None = None  # its number in the split; None: every example is a question of its own


@dataclass(frozen=True)
class SpanBatch:
    ids_BT: Tensor
    mask_BT: Tensor
    types_BT: Tensor | None
    ends_B2: Tensor  # first and last token of the answer; IGNORE_INDEX if it is beyond the last token

    @property
    def tokens(self) -> int:
        return int(self.mask_BT.sum())

    @property
    def targets(self) -> int:
        return int((self.ends_B2 != IGNORE_INDEX).sum())


class QuestionAnswering(BucketedTask[QAExample, SpanBatch]):
    @property
    def better(self) -> Better:
        return Better("f1", larger=True)

    def size(self, example: QAExample) -> tuple[int, ...]:
        return (len(example.ids),)

    def collate(self, examples: Sequence[QAExample], key: int) -> SpanBatch:
        rows = [x.ids for x in examples]
        typed = [x.types for x in examples if x.types is not None]
        types = pad_ids(typed, 0) if len(typed) == len(rows) else None
        ends = torch.tensor([[x.first, x.last] for x in examples])
        return SpanBatch(pad_ids(rows, self.pad), padding_mask(rows), types, ends)

    def summed_loss(self, model: TransformerModel, batch: SpanBatch, smoothing: Smoothing) -> Tensor:
        scores_B2T = self._scores(model, batch).mT
        return class_loss(scores_B2T, batch.ends_B2, smoothing)

    @torch.no_grad()
    def evaluate(self, model: TransformerModel, split: str) -> Evaluation:
        """The answer to a question is the most likely span of all parts of its context."""
        spans: dict[int, ScoredSpan] = {}
        losses: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for rows, batch in self.numbered_batches(model, split):
            scores_BT2, ends_B2 = self._scores(model, batch).float().cpu(), batch.ends_B2.cpu()
            each = zip(rows, scores_BT2, ends_B2, class_losses(scores_BT2.mT, ends_B2), strict=True)
            for i, scores_T2, ends, loss in each:
                example = self.splits[split][i]
                number = i if example.question is None else example.question
                span = scored_span(scores_T2, example)
                spans[number] = max(spans.get(number, span), span)
                losses[number].append((loss, int((ends != IGNORE_INDEX).sum())))
        outcomes = []
        for number, example in enumerate(self.questions(split)):
            answer = spans[number].text
            error = 100 - answer_scores([answer], [example.answers])["f1"]
            loss, targets = (sum(each) for each in zip(*losses[number], strict=True))
            reference = " / ".join(dict.fromkeys(example.answers))
            outcomes.append(ExampleOutcome(number, reference, answer, error, loss, int(targets)))
        predictions = [outcome.prediction for outcome in outcomes]
        references = [example.answers for example in self.questions(split)]
        scores = {"loss": mean_loss(outcomes), **answer_scores(predictions, references)}
        return Evaluation(scores, outcomes, "100 - F1")

    def questions(self, split: str) -> list[QAExample]:
        """One example of each question, in order: the first part of its context."""
        first: dict[int, QAExample] = {}
        for i, example in enumerate(self.splits[split]):
            first.setdefault(i if example.question is None else example.question, example)
        return [first[number] for number in sorted(first)]

    def samples(self, model: TransformerModel) -> list[str]:
        return []

    def _scores(self, model: TransformerModel, batch: SpanBatch) -> Tensor:
        if model.spec.inputs > 1:
            raise InputError("answer spans need a model with one tower")
        scores_BT2: Tensor = model(batch.ids_BT, batch.mask_BT, types=segment_types(model, batch.types_BT))
        return scores_BT2.masked_fill(batch.mask_BT[..., None] == 0, torch.finfo(scores_BT2.dtype).min)


class ScoredSpan(NamedTuple):
    score: float  # of its first and its last token together
    text: str


def best_span(scores_T2: Tensor, example: QAExample) -> str:
    return scored_span(scores_T2, example).text


def scored_span(scores_T2: Tensor, example: QAExample) -> ScoredSpan:
    """The most likely span inside the context, of at most MAX_ANSWER_TOKENS tokens.

    The scores are on the CPU.
    """
    length = len(example.ids)
    inside = torch.tensor([span is not None for span in example.spans])
    pairs = scores_T2[:length, 0][:, None] + scores_T2[:length, 1][None, :]
    near = torch.ones(length, length, dtype=torch.bool).triu().tril(MAX_ANSWER_TOKENS - 1)
    allowed = near & inside[:, None] & inside[None, :]
    if not bool(allowed.any()):
        return ScoredSpan(-math.inf, "")
    first, last = divmod(int(pairs.masked_fill(~allowed, float("-inf")).argmax()), length)
    begin, end = example.spans[first], example.spans[last]
    assert begin is not None and end is not None
    return ScoredSpan(float(pairs[first, last]), example.context[begin[0] : end[1]])
