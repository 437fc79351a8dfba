"""Labels for texts and for tokens: ids and labels in; loss, accuracy and F1 out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ..data import IGNORE_INDEX
from ..errors import InputError
from ..nn import TransformerModel
from .bucketed import BucketedTask, pad_ids, padding_mask
from .losses import Smoothing, class_loss
from .metrics import label_scores, tag_scores
from .task import Better


@dataclass(frozen=True)
class LabelledExample:
    ids: Sequence[int]
    label: int


@dataclass(frozen=True)
class TaggedExample:
    ids: Sequence[int]
    tags: Sequence[int]  # one per id, IGNORE_INDEX at special tokens and at pieces after the first of a word


@dataclass(frozen=True)
class LabelBatch:
    ids_BT: Tensor
    mask_BT: Tensor
    labels: Tensor  # (B,) for texts, (B, T) for tokens

    @property
    def targets(self) -> int:
        return int((self.labels != IGNORE_INDEX).sum())


X = TypeVar("X", bound=LabelledExample | TaggedExample)


class _Labelling(BucketedTask[X, LabelBatch]):
    """What both share: rows of ids, and a class for each text or token."""

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
        self.pad, self.names = pad, tuple(names)
        super().__init__(
            splits,
            tokens=tokens,
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
        """The labels of a batch, (B,) or (B, T)."""

    def collate(self, examples: Sequence[X], key: int) -> LabelBatch:
        rows = [x.ids for x in examples]
        return LabelBatch(pad_ids(rows, self.pad), padding_mask(rows), self.labels(examples))

    def summed_loss(self, model: TransformerModel, batch: LabelBatch, smoothing: Smoothing) -> Tensor:
        return class_loss(_answers(model, batch), batch.labels, smoothing)

    def samples(self, model: TransformerModel) -> list[str]:
        return []


class TextClassification(_Labelling[LabelledExample]):
    """One label per text."""

    @property
    def better(self) -> Better:
        return Better("accuracy", larger=True)

    def labels(self, examples: Sequence[LabelledExample]) -> Tensor:
        return torch.tensor([x.label for x in examples])

    @torch.no_grad()
    def metrics(self, model: TransformerModel, split: str) -> dict[str, float]:
        predictions: list[int] = []
        references: list[int] = []
        for batch in self.batches(split):
            predictions += _answers(model, batch).argmax(-1).tolist()
            references += batch.labels.tolist()
        return label_scores(predictions, references)


class TokenClassification(_Labelling[TaggedExample]):
    """One label per token; `names` are the tags by class index, such as B-PER."""

    @property
    def better(self) -> Better:
        return Better("f1", larger=True)

    def labels(self, examples: Sequence[TaggedExample]) -> Tensor:
        return pad_ids([x.tags for x in examples], IGNORE_INDEX)

    @torch.no_grad()
    def metrics(self, model: TransformerModel, split: str) -> dict[str, float]:
        predictions: list[list[str]] = []
        references: list[list[str]] = []
        for batch in self.batches(split):
            for guess, truth in zip(_answers(model, batch).argmax(-1), batch.labels, strict=True):
                kept = truth != IGNORE_INDEX
                predictions.append([self.names[i] for i in guess[kept].tolist()])
                references.append([self.names[i] for i in truth[kept].tolist()])
        return tag_scores(predictions, references)


def _answers(model: TransformerModel, batch: LabelBatch) -> Tensor:
    if len(model.spec.towers) > 1:
        raise InputError("labels need a model with one tower")
    answers: Tensor = model(batch.ids_BT, batch.mask_BT)
    return answers
