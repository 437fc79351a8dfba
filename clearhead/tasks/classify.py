"""Labels for texts and for tokens: ids and labels in; loss, accuracy and F1 out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.packing import NOTHING
from ..errors import InputError
from ..nn.model import SingleModel
from .bucketed import AnyModel, Bucketed
from .losses import Smoothing, class_loss
from .metrics import label_scores, tag_scores
from .padded import padded, real
from .task import Better


@dataclass(frozen=True)
class Labelled:
    ids: Sequence[int]
    label: int


@dataclass(frozen=True)
class Tagged:
    ids: Sequence[int]
    tags: Sequence[int]  # one per id, NOTHING at special tokens and at pieces after the first of a word


@dataclass(frozen=True)
class LabelBatch:
    ids_BT: Tensor
    mask_BT: Tensor
    labels: Tensor  # (B,) for texts, (B, T) for tokens

    @property
    def targets(self) -> int:
        return int((self.labels != NOTHING).sum())


class Classify(Bucketed[Labelled, LabelBatch]):
    """One label a text."""

    def __init__(
        self,
        splits: Mapping[str, Sequence[Labelled]],
        *,
        pad: int,
        tokens: int,
        seed: int = 0,
        parts: int = 1,
        smoothing: float = 0.0,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.pad = pad
        super().__init__(
            splits,
            tokens=tokens,
            seed=seed,
            parts=parts,
            smoothing=Smoothing(smoothing),
            fingerprint=fingerprint,
        )

    @property
    def better(self) -> Better:
        return Better("accuracy", larger=True)

    def size(self, example: Labelled) -> tuple[int, ...]:
        return (len(example.ids),)

    def collate(self, examples: Sequence[Labelled], key: int) -> LabelBatch:
        rows = [x.ids for x in examples]
        return LabelBatch(padded(rows, self.pad), real(rows), torch.tensor([x.label for x in examples]))

    def summed(self, model: AnyModel, batch: LabelBatch, smoothing: Smoothing) -> Tensor:
        return class_loss(_answers(model, batch), batch.labels, smoothing)

    @torch.no_grad()
    def measures(self, model: AnyModel, split: str) -> dict[str, float]:
        said: list[int] = []
        wanted: list[int] = []
        for batch in self.batches(split):
            said += _answers(model, batch).argmax(-1).tolist()
            wanted += batch.labels.tolist()
        return label_scores(said, wanted)

    def samples(self, model: AnyModel) -> list[str]:
        return []


class Tag(Bucketed[Tagged, LabelBatch]):
    """One label a token; `names` are the tags by number, as B-PER."""

    def __init__(
        self,
        splits: Mapping[str, Sequence[Tagged]],
        *,
        names: Sequence[str],
        pad: int,
        tokens: int,
        seed: int = 0,
        parts: int = 1,
        smoothing: float = 0.0,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.pad, self.names = pad, tuple(names)
        super().__init__(
            splits,
            tokens=tokens,
            seed=seed,
            parts=parts,
            smoothing=Smoothing(smoothing),
            fingerprint=fingerprint,
        )

    @property
    def better(self) -> Better:
        return Better("f1", larger=True)

    def size(self, example: Tagged) -> tuple[int, ...]:
        return (len(example.ids),)

    def collate(self, examples: Sequence[Tagged], key: int) -> LabelBatch:
        rows = [x.ids for x in examples]
        return LabelBatch(padded(rows, self.pad), real(rows), padded([x.tags for x in examples], NOTHING))

    def summed(self, model: AnyModel, batch: LabelBatch, smoothing: Smoothing) -> Tensor:
        return class_loss(_answers(model, batch), batch.labels, smoothing)

    @torch.no_grad()
    def measures(self, model: AnyModel, split: str) -> dict[str, float]:
        said: list[list[str]] = []
        wanted: list[list[str]] = []
        for batch in self.batches(split):
            for guess, truth in zip(_answers(model, batch).argmax(-1), batch.labels, strict=True):
                kept = truth != NOTHING
                said.append([self.names[i] for i in guess[kept].tolist()])
                wanted.append([self.names[i] for i in truth[kept].tolist()])
        return tag_scores(said, wanted)

    def samples(self, model: AnyModel) -> list[str]:
        return []


def _answers(model: AnyModel, batch: LabelBatch) -> Tensor:
    if not isinstance(model, SingleModel):
        raise InputError("labels need a model with one tower")
    answers: Tensor = model(batch.ids_BT, batch.mask_BT)
    return answers
