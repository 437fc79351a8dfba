"""Labels for texts and for tokens: ids and labels in; loss, accuracy and F1, or correlations, out.

One label per text, several at once, a number, or one label per token: the same batches, another loss.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import IGNORE_INDEX
from ..errors import InputError
from ..nn import TransformerModel
from .bucketed import BucketedTask, pad_ids, padding_mask, segment_types
from .losses import Smoothing, class_loss
from .metrics import correlation_scores, entity_scores, label_scores, multi_label_scores, tag_scores
from .outcomes import NONE, ClassScores, Evaluation, ExampleOutcome, class_losses, mean_loss, scores_per_class
from .task import Better


@dataclass(frozen=True)
class LabelledExample:
    ids: Sequence[int]
    label: int
    types: Sequence[int] | None = None  # 0 in the first text, 1 in the second


@dataclass(frozen=True)
class MultiLabelExample:
    ids: Sequence[int]
    labels: Sequence[int]  # the class indices of its labels; may be empty
    types: Sequence[int] | None = None


@dataclass(frozen=True)
class ScoredExample:
    ids: Sequence[int]
    score: float
    types: Sequence[int] | None = None


@dataclass(frozen=True)
class TaggedExample:
    ids: Sequence[int]
    tags: Sequence[int]  # one per id, IGNORE_INDEX at special tokens and at pieces after the first of a word
    types: Sequence[int] | None = None
    lost: Sequence[int] = ()  # the tags of words that were cut: they count as not found


@dataclass(frozen=True)
class LabelBatch:
    ids_BT: Tensor
    mask_BT: Tensor
    labels: Tensor  # (B,) for texts, (B, C) for several labels at once, (B, T) for tokens
    types_BT: Tensor | None
    targets: int

    @property
    def tokens(self) -> int:
        return int(self.mask_BT.sum())


OUTSIDE = "O"  # the tag of words that belong to no entity
X = TypeVar("X", bound=LabelledExample | MultiLabelExample | ScoredExample | TaggedExample)


class _Labelling(BucketedTask[X, LabelBatch]):
    """What all share: rows of ids, and something to predict for each text or token."""

    def __init__(
        self,
        splits: Mapping[str, Sequence[X]],
        *,
        pad: int,
        tokens: int,
        rows: int | None = None,
        names: Sequence[str] = (),
        seed: int = 0,
        parts: int = 1,
        smoothing: float = 0.0,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.names = tuple(names)
        super().__init__(
            splits,
            tokens=tokens,
            pad=pad,
            rows=rows,
            seed=seed,
            parts=parts,
            smoothing=Smoothing(smoothing),
            fingerprint=fingerprint,
        )

    def size(self, example: X) -> tuple[int, ...]:
        return (len(example.ids),)

    @abstractmethod
    def labels(self, examples: Sequence[X]) -> Tensor:
        """The labels of a batch."""

    def collate(self, examples: Sequence[X], key: int) -> LabelBatch:
        rows, labels = [x.ids for x in examples], self.labels(examples)
        typed = [x.types for x in examples if x.types is not None]
        types_BT = pad_ids(typed, 0) if len(typed) == len(rows) else None
        return LabelBatch(
            pad_ids(rows, self.pad), padding_mask(rows), labels, types_BT, self.count_targets(labels)
        )

    def count_targets(self, labels: Tensor) -> int:
        return len(labels)

    def summed_loss(self, model: TransformerModel, batch: LabelBatch, smoothing: Smoothing) -> Tensor:
        return class_loss(_answers(model, batch), batch.labels, smoothing)

    def samples(self, model: TransformerModel) -> list[str]:
        return []

    @torch.no_grad()
    def evaluate(self, model: TransformerModel, split: str) -> Evaluation:
        outcomes: list[ExampleOutcome] = []
        for rows, batch in self.numbered_batches(model, split):
            examples = [self.splits[split][i] for i in rows]
            answers, labels = _answers(model, batch).float().cpu(), batch.labels.cpu()
            outcomes += self.outcomes(rows, examples, answers, labels)
        outcomes.sort(key=lambda outcome: outcome.example)
        scores = {"loss": mean_loss(outcomes), **self.scores_of(outcomes)}
        return Evaluation(scores, outcomes, self.measure, self.names, self.per_class(outcomes))

    measure = "loss"  # of the error of an outcome

    @abstractmethod
    def outcomes(
        self, rows: Sequence[int], examples: Sequence[X], answers: Tensor, labels: Tensor
    ) -> Iterator[ExampleOutcome]:
        """The outcomes of a batch: its examples with their indices, the outputs of the model, its labels."""

    @abstractmethod
    def scores_of(self, outcomes: Sequence[ExampleOutcome]) -> dict[str, float]:
        """The metrics of the task, from the outcomes of a split."""

    def per_class(self, outcomes: Sequence[ExampleOutcome]) -> dict[str, ClassScores]:
        return scores_per_class(outcomes, self.names)

    def name_of(self, number: int) -> str:
        return self.names[number] if self.names else str(number)


class TextClassification(_Labelling[LabelledExample]):
    """One label per text, or per pair of texts."""

    @property
    def better(self) -> Better:
        return Better("accuracy", larger=True)

    def labels(self, examples: Sequence[LabelledExample]) -> Tensor:
        return torch.tensor([x.label for x in examples])

    def outcomes(
        self, rows: Sequence[int], examples: Sequence[LabelledExample], answers: Tensor, labels: Tensor
    ) -> Iterator[ExampleOutcome]:
        each = zip(rows, answers.argmax(-1).tolist(), labels.tolist(), strict=True)
        for (i, guess, truth), loss in zip(each, class_losses(answers, labels), strict=True):
            pair = self.name_of(truth), self.name_of(guess)
            yield ExampleOutcome(i, *pair, loss, loss, 1, (pair,))

    def scores_of(self, outcomes: Sequence[ExampleOutcome]) -> dict[str, float]:
        return label_scores([o.prediction for o in outcomes], [o.reference for o in outcomes])


class MultiLabelClassification(_Labelling[MultiLabelExample]):
    """Several labels per text: each of the classes in `names` is a question of its own, yes or no."""

    @property
    def better(self) -> Better:
        return Better("f1", larger=True)

    def labels(self, examples: Sequence[MultiLabelExample]) -> Tensor:
        labels_BC = torch.zeros(len(examples), len(self.names))
        for row, example in enumerate(examples):
            labels_BC[row, list(example.labels)] = 1.0
        return labels_BC

    def summed_loss(self, model: TransformerModel, batch: LabelBatch, smoothing: Smoothing) -> Tensor:
        """Binary cross-entropy, the mean over the classes of a text; smoothing moves both answers to 0.5."""
        wanted_BC = batch.labels * (1 - smoothing.amount) + smoothing.amount / 2
        logits_BC = _answers(model, batch).float()
        return F.binary_cross_entropy_with_logits(logits_BC, wanted_BC, reduction="none").mean(1).sum()

    def outcomes(
        self, rows: Sequence[int], examples: Sequence[MultiLabelExample], answers: Tensor, labels: Tensor
    ) -> Iterator[ExampleOutcome]:
        losses = F.binary_cross_entropy_with_logits(answers, labels, reduction="none").mean(1).tolist()
        each = zip(rows, (answers > 0).tolist(), labels.bool().tolist(), losses, strict=True)
        for i, guesses, truths, loss in each:
            pairs = [
                (name if truth else NONE, name if guess else NONE)
                for name, truth, guess in zip(self.names, truths, guesses, strict=True)
                if truth or guess
            ]
            texts = [", ".join(filter(None, (pair[side] for pair in pairs))) or "(none)" for side in (0, 1)]
            yield ExampleOutcome(i, texts[0], texts[1], loss, loss, 1, tuple(pairs))

    def scores_of(self, outcomes: Sequence[ExampleOutcome]) -> dict[str, float]:
        sides = [
            [[int(name in {pair[side] for pair in o.classes}) for name in self.names] for o in outcomes]
            for side in (1, 0)
        ]
        return multi_label_scores(*sides)


class Regression(_Labelling[ScoredExample]):
    """A number per text or pair of texts, such as a rating or the similarity of two sentences."""

    @property
    def better(self) -> Better:
        return Better("spearman", larger=True)

    def labels(self, examples: Sequence[ScoredExample]) -> Tensor:
        return torch.tensor([x.score for x in examples], dtype=torch.float32)

    def summed_loss(self, model: TransformerModel, batch: LabelBatch, smoothing: Smoothing) -> Tensor:
        return F.mse_loss(_answers(model, batch)[:, 0].float(), batch.labels, reduction="sum")

    measure = "difference"

    def outcomes(
        self, rows: Sequence[int], examples: Sequence[ScoredExample], answers: Tensor, labels: Tensor
    ) -> Iterator[ExampleOutcome]:
        for i, guess, truth in zip(rows, answers[:, 0].tolist(), labels.tolist(), strict=True):
            yield ExampleOutcome(
                i, f"{truth:.9g}", f"{guess:.9g}", abs(guess - truth), (guess - truth) ** 2, 1
            )

    def scores_of(self, outcomes: Sequence[ExampleOutcome]) -> dict[str, float]:
        return correlation_scores(
            [float(o.prediction) for o in outcomes], [float(o.reference) for o in outcomes]
        )


class TokenClassification(_Labelling[TaggedExample]):
    """One label per token; `names` are the tags by class index, such as B-PER."""

    @property
    def better(self) -> Better:
        return Better("f1", larger=True)

    def labels(self, examples: Sequence[TaggedExample]) -> Tensor:
        return pad_ids([x.tags for x in examples], IGNORE_INDEX)

    def count_targets(self, labels: Tensor) -> int:
        return int((labels != IGNORE_INDEX).sum())

    def outcomes(
        self, rows: Sequence[int], examples: Sequence[TaggedExample], answers: Tensor, labels: Tensor
    ) -> Iterator[ExampleOutcome]:
        each = zip(rows, examples, answers.argmax(-1), labels, class_losses(answers, labels), strict=True)
        for i, example, guess, truth, loss in each:
            kept = truth != IGNORE_INDEX
            names = [[self.name_of(n) for n in side[kept].tolist()] for side in (truth, guess)]
            targets = len(names[0])
            if OUTSIDE in self.names:  # words that were cut are not found
                lost = [self.name_of(n) for n in example.lost]
                names = [names[0] + lost, names[1] + [OUTSIDE] * len(lost)]
            pairs = tuple(zip(*names, strict=True))
            yield ExampleOutcome(i, " ".join(names[0]), " ".join(names[1]), loss, loss, targets, pairs)

    def scores_of(self, outcomes: Sequence[ExampleOutcome]) -> dict[str, float]:
        return tag_scores(*_tag_sides(outcomes))

    def per_class(self, outcomes: Sequence[ExampleOutcome]) -> dict[str, ClassScores]:
        """Of kinds of entities, without B- and I-."""
        return {name: ClassScores(*scores) for name, scores in entity_scores(*_tag_sides(outcomes)).items()}


def _tag_sides(outcomes: Sequence[ExampleOutcome]) -> tuple[list[list[str]], list[list[str]]]:
    """The predicted tags and the references of each text."""
    return (
        [[guess for _, guess in o.classes] for o in outcomes],
        [[truth for truth, _ in o.classes] for o in outcomes],
    )


def _answers(model: TransformerModel, batch: LabelBatch) -> Tensor:
    if model.spec.inputs > 1:
        raise InputError("labels need a model with one tower")
    answers: Tensor = model(batch.ids_BT, batch.mask_BT, types=segment_types(model, batch.types_BT))
    return answers
