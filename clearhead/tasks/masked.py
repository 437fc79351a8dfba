"""Masked language modelling: texts of ids in; the loss of the hidden words out.

`MaskedLM` hides words of single texts (RoBERTa); `Pretrain` hides words of two texts side by side and asks
beside that whether the second follows the first (BERT).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..data.corrupt import Masked, mask_words
from ..data.following import Following
from ..data.order import draws
from ..data.packing import NOTHING
from ..errors import InputError
from ..nn.model import SingleModel
from .bucketed import AnyModel, Bucketed
from .losses import Smoothing, class_loss, token_loss
from .padded import padded, real
from .task import Better

Text = Sequence[int]
Masking = Literal["dynamic", "static"]


@dataclass(frozen=True)
class Hide:
    """Which words are hidden. Dynamic: others each time a text comes (Liu 2019); static: always the same."""

    mask: int
    vocab: int
    special: frozenset[int]
    share: float = 0.15
    masking: Masking = "dynamic"
    seed: int = 0

    def __call__(self, text: Text, key: int, row: int) -> Masked:
        drawn = (key, row) if self.masking == "dynamic" else ("static", _digest(text))
        draw = draws(self.seed, "mask", *drawn)
        return mask_words(
            text, draw, mask=self.mask, vocab=self.vocab, special=self.special, share=self.share
        )


@dataclass(frozen=True)
class TextBatch:
    ids_BT: Tensor
    mask_BT: Tensor
    labels_BT: Tensor  # NOTHING where nothing is asked

    @property
    def targets(self) -> int:
        return int((self.labels_BT != NOTHING).sum())


class MaskedLM(Bucketed[Text, TextBatch]):
    def __init__(
        self,
        splits: Mapping[str, Sequence[Text]],
        *,
        hide: Hide,
        pad: int,
        tokens: int,
        seed: int = 0,
        parts: int = 1,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.hide, self.pad = hide, pad
        said = {"hide": str(hide.masking), **(fingerprint or {})}
        super().__init__(splits, tokens=tokens, seed=seed, parts=parts, fingerprint=said)

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    def size(self, example: Text) -> tuple[int, ...]:
        return (len(example),)

    def collate(self, examples: Sequence[Text], key: int) -> TextBatch:
        hidden = [self.hide(text, key, row) for row, text in enumerate(examples)]
        damaged, asked = [m.ids for m in hidden], [m.labels for m in hidden]
        return TextBatch(padded(damaged, self.pad), real(damaged), padded(asked, NOTHING))

    def summed(self, model: AnyModel, batch: TextBatch, smoothing: Smoothing) -> Tensor:
        states = _one_tower(model).states(batch.ids_BT, batch.mask_BT)
        return token_loss(model, states, batch.labels_BT, smoothing)

    @torch.no_grad()
    def measures(self, model: AnyModel, split: str) -> dict[str, float]:
        batches = self.batches(split)
        tower = _one_tower(model)
        return guessed((tower(b.ids_BT, b.mask_BT), b.labels_BT) for b in batches)

    def samples(self, model: AnyModel) -> list[str]:
        return []


@dataclass(frozen=True)
class TwoBatch(TextBatch):
    types_BT: Tensor  # 0 in the first text, 1 in the second
    follows_B: Tensor  # 0: it follows, 1: it does not; BERT's own numbers


class Pretrain(Bucketed[Following, TwoBatch]):
    """BERT's two questions at once. A model with a second head is needed: `build("bert", task="pretrain")`.

    Their losses are added as means, so that neither drowns the other: the second question is weighed by the
    number of hidden words there are to a pair of texts.
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[Following]],
        *,
        hide: Hide,
        pad: int,
        start: int,
        end: int,
        tokens: int,
        seed: int = 0,
        parts: int = 1,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.hide, self.pad, self.start, self.end = hide, pad, start, end
        said = {"hide": str(hide.masking), **(fingerprint or {})}
        super().__init__(splits, tokens=tokens, seed=seed, parts=parts, fingerprint=said)
        words = [len(pair.first) + len(pair.second) for pair in splits["train"]]
        self.weight = hide.share * sum(words) / len(words)

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    def size(self, example: Following) -> tuple[int, ...]:
        return (len(example.first) + len(example.second) + 3,)

    def collate(self, examples: Sequence[Following], key: int) -> TwoBatch:
        whole = [[self.start, *x.first, self.end, *x.second, self.end] for x in examples]
        types = [[0] * (len(x.first) + 2) + [1] * (len(x.second) + 1) for x in examples]
        hidden = [self.hide(text, key, row) for row, text in enumerate(whole)]
        return TwoBatch(
            padded([m.ids for m in hidden], self.pad),
            real(whole),
            padded([m.labels for m in hidden], NOTHING),
            padded(types, 0),
            torch.tensor([0 if x.follows else 1 for x in examples]),
        )

    def summed(self, model: AnyModel, batch: TwoBatch, smoothing: Smoothing) -> Tensor:
        tower = _one_tower(model)
        states = tower.states(batch.ids_BT, batch.mask_BT, types=batch.types_BT)
        words = token_loss(model, states, batch.labels_BT, smoothing)
        return words + self.weight * class_loss(tower.read_second(states), batch.follows_B, smoothing)

    @torch.no_grad()
    def measures(self, model: AnyModel, split: str) -> dict[str, float]:
        """How many hidden words are guessed, and how often it is known whether a text follows."""
        tower = _one_tower(model)
        known: list[Tensor] = []

        def answers() -> Iterator[tuple[Tensor, Tensor]]:
            for batch in self.batches(split):
                states = tower.states(batch.ids_BT, batch.mask_BT, types=batch.types_BT)
                known.append(tower.read_second(states).argmax(-1) == batch.follows_B)
                yield tower.read(states), batch.labels_BT

        return {**guessed(answers()), "follows": 100 * float(torch.cat(known).double().mean())}

    def samples(self, model: AnyModel) -> list[str]:
        return []


def guessed(answers: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """How many hidden words are guessed: batches of logits (B, T, V) and labels (B, T) in."""
    right = count = 0
    total = 0.0
    for logits_BTV, labels_BT in answers:
        where = labels_BT != NOTHING
        guess, label = logits_BTV[where], labels_BT[where]
        right += int((guess.argmax(-1) == label).sum())
        total += float(Smoothing().loss(guess, label))
        count += len(label)
    return {"accuracy": 100 * right / count, "perplexity": math.exp(min(total / count, 700.0))}


def _one_tower(model: AnyModel) -> SingleModel:
    if not isinstance(model, SingleModel):
        raise InputError("masked language modelling needs a model with one tower, such as BERT")
    return model


def _digest(text: Text) -> int:
    return int.from_bytes(hashlib.sha256(repr(list(text)).encode()).digest()[:8], "big")
