"""Masked language modelling: texts of ids in; the loss of the masked tokens out.

`MaskedLM` masks tokens of single texts (RoBERTa); `BertPretraining` masks tokens of pairs of texts and also
predicts whether the second follows the first (BERT).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..data import IGNORE_INDEX, MaskedIds, SentencePair, generator_for, mask_words
from ..errors import InputError
from ..nn import TransformerModel
from .bucketed import BucketedTask, pad_ids, padding_mask
from .losses import Smoothing, class_loss, token_loss
from .outcomes import Evaluation, ExampleOutcome, losses_of_rows, mean_loss
from .task import Better

TokenIds = Sequence[int]
Masking = Literal["dynamic", "static"]


@dataclass(frozen=True)
class TokenMasking:
    """Which tokens are masked. Dynamic: others in every epoch (Liu 2019); static: always the same."""

    mask: int
    vocab: int
    special: frozenset[int]
    share: float = 0.15
    masking: Masking = "dynamic"
    seed: int = 0

    def __call__(self, text: TokenIds, key: int, row: int) -> MaskedIds:
        drawn = (key, row) if self.masking == "dynamic" else ("static", _digest(text))
        draw = generator_for(self.seed, "mask", *drawn)
        return mask_words(
            text, draw, mask=self.mask, vocab=self.vocab, special=self.special, share=self.share
        )


@dataclass(frozen=True)
class MaskedBatch:
    ids_BT: Tensor
    mask_BT: Tensor
    labels_BT: Tensor  # IGNORE_INDEX where no token is masked

    @property
    def tokens(self) -> int:
        return int(self.mask_BT.sum())

    @property
    def targets(self) -> int:
        return int((self.labels_BT != IGNORE_INDEX).sum())


class MaskedLM(BucketedTask[TokenIds, MaskedBatch]):
    def __init__(
        self,
        splits: Mapping[str, Sequence[TokenIds]],
        *,
        hide: TokenMasking,
        pad: int,
        tokens: int,
        rows: int | None = None,
        seed: int = 0,
        parts: int = 1,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.hide, self.pad = hide, pad
        settings = {"hide": str(hide.masking), **(fingerprint or {})}
        super().__init__(splits, tokens=tokens, rows=rows, seed=seed, parts=parts, fingerprint=settings)

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    def size(self, example: TokenIds) -> tuple[int, ...]:
        return (len(example),)

    def collate(self, examples: Sequence[TokenIds], key: int) -> MaskedBatch:
        hidden = [self.hide(text, key, row) for row, text in enumerate(examples)]
        masked, labels = [m.ids for m in hidden], [m.labels for m in hidden]
        return MaskedBatch(pad_ids(masked, self.pad), padding_mask(masked), pad_ids(labels, IGNORE_INDEX))

    def summed_loss(self, model: TransformerModel, batch: MaskedBatch, smoothing: Smoothing) -> Tensor:
        states = _one_tower(model).states(batch.ids_BT, batch.mask_BT)
        return token_loss(model, states, batch.labels_BT, smoothing)

    @torch.no_grad()
    def metrics(self, model: TransformerModel, split: str) -> dict[str, float]:
        batches = self.batches(split, model)
        tower = _one_tower(model)
        return masked_scores((tower(b.ids_BT, b.mask_BT), b.labels_BT) for b in batches)

    @torch.no_grad()
    def evaluate(self, model: TransformerModel, split: str) -> Evaluation:
        outcomes = []
        for rows, batch in self.numbered_batches(model, split):
            states = _one_tower(model).states(batch.ids_BT, batch.mask_BT)
            losses = losses_of_rows(model, states, batch.labels_BT)
            targets = (batch.labels_BT != IGNORE_INDEX).sum(1).tolist()
            outcomes += [
                ExampleOutcome(i, "", "", loss / max(count, 1), loss, count)
                for i, loss, count in zip(rows, losses, targets, strict=True)
            ]
        outcomes.sort(key=lambda outcome: outcome.example)
        scores = {"loss": mean_loss(outcomes), **self.metrics(model, split)}
        return Evaluation(scores, outcomes, "loss per masked token")

    def samples(self, model: TransformerModel) -> list[str]:
        return []


@dataclass(frozen=True)
class PretrainingBatch(MaskedBatch):
    types_BT: Tensor  # 0 in the first text, 1 in the second
    follows_B: Tensor  # 0: it follows, 1: it does not; BERT's own numbers


class BertPretraining(BucketedTask[SentencePair, PretrainingBatch]):
    """BERT's two objectives at once. It needs a model with a second head: `build("bert", task="pretrain")`.

    The two losses are added as means, so that neither dominates: next-sentence prediction is weighted by the
    number of masked tokens per pair of texts.
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[SentencePair]],
        *,
        hide: TokenMasking,
        pad: int,
        start: int,
        end: int,
        tokens: int,
        rows: int | None = None,
        seed: int = 0,
        parts: int = 1,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.hide, self.pad, self.start, self.end = hide, pad, start, end
        settings = {"hide": str(hide.masking), **(fingerprint or {})}
        super().__init__(splits, tokens=tokens, rows=rows, seed=seed, parts=parts, fingerprint=settings)
        words = [len(pair.first) + len(pair.second) for pair in splits["train"]]
        self.weight = hide.share * sum(words) / len(words)

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    def size(self, example: SentencePair) -> tuple[int, ...]:
        return (len(example.first) + len(example.second) + 3,)

    def collate(self, examples: Sequence[SentencePair], key: int) -> PretrainingBatch:
        whole = [[self.start, *x.first, self.end, *x.second, self.end] for x in examples]
        types = [[0] * (len(x.first) + 2) + [1] * (len(x.second) + 1) for x in examples]
        hidden = [self.hide(text, key, row) for row, text in enumerate(whole)]
        return PretrainingBatch(
            pad_ids([m.ids for m in hidden], self.pad),
            padding_mask(whole),
            pad_ids([m.labels for m in hidden], IGNORE_INDEX),
            pad_ids(types, 0),
            torch.tensor([0 if x.follows else 1 for x in examples]),
        )

    def summed_loss(self, model: TransformerModel, batch: PretrainingBatch, smoothing: Smoothing) -> Tensor:
        tower = _one_tower(model)
        states = tower.states(batch.ids_BT, batch.mask_BT, types=batch.types_BT)
        words = token_loss(model, states, batch.labels_BT, smoothing)
        return words + self.weight * class_loss(tower.read_second(states), batch.follows_B, smoothing)

    @torch.no_grad()
    def metrics(self, model: TransformerModel, split: str) -> dict[str, float]:
        """Accuracy on masked tokens, and on whether the second text follows."""
        tower = _one_tower(model)
        known: list[Tensor] = []

        def answers() -> Iterator[tuple[Tensor, Tensor]]:
            for batch in self.batches(split, model):
                states = tower.states(batch.ids_BT, batch.mask_BT, types=batch.types_BT)
                known.append(tower.read_second(states).argmax(-1) == batch.follows_B)
                yield tower.read(states), batch.labels_BT

        return {**masked_scores(answers()), "follows": 100 * float(torch.cat(known).double().mean())}

    def samples(self, model: TransformerModel) -> list[str]:
        return []


def masked_scores(answers: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Accuracy and perplexity on masked tokens: batches of logits (B, T, V) and labels (B, T) in."""
    right = count = 0
    total = 0.0
    for logits_BTV, labels_BT in answers:
        where = labels_BT != IGNORE_INDEX
        guess, label = logits_BTV[where], labels_BT[where]
        right += int((guess.argmax(-1) == label).sum())
        total += float(Smoothing().loss(guess, label))
        count += len(label)
    return {"accuracy": 100 * right / count, "perplexity": math.exp(min(total / count, 700.0))}


def _one_tower(model: TransformerModel) -> TransformerModel:
    if len(model.spec.towers) > 1:
        raise InputError("masked language modelling needs a model with one tower, such as BERT")
    return model


def _digest(text: TokenIds) -> int:
    return int.from_bytes(hashlib.sha256(repr(list(text)).encode()).digest()[:8], "big")
