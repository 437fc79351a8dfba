"""Masked language modelling: texts of ids in; the loss of the hidden words out, other words each time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.corrupt import mask_words
from ..data.order import draws
from ..data.packing import NOTHING
from ..errors import InputError
from ..nn.model import SingleModel
from .bucketed import AnyModel, Bucketed
from .losses import Smoothing, token_loss
from .padded import padded, real
from .task import Better

Text = Sequence[int]


@dataclass(frozen=True)
class TextBatch:
    ids_BT: Tensor
    mask_BT: Tensor
    labels_BT: Tensor  # NOTHING where nothing is asked

    @property
    def targets(self) -> int:
        return int((self.labels_BT != NOTHING).sum())


class MaskedLM(Bucketed[Text, TextBatch]):
    """Dynamic masking (Liu 2019): which words are hidden depends on the seed and the number of the batch."""

    def __init__(
        self,
        splits: Mapping[str, Sequence[Text]],
        *,
        mask: int,
        pad: int,
        vocab: int,
        special: frozenset[int],
        tokens: int,
        share: float = 0.15,
        seed: int = 0,
        parts: int = 1,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.mask, self.pad, self.vocab, self.special, self.share = mask, pad, vocab, special, share
        super().__init__(splits, tokens=tokens, seed=seed, parts=parts, fingerprint=fingerprint)

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    def size(self, example: Text) -> tuple[int, ...]:
        return (len(example),)

    def collate(self, examples: Sequence[Text], key: int) -> TextBatch:
        hidden = [
            mask_words(
                text,
                draws(self.seed, "mask", key, i),
                mask=self.mask,
                vocab=self.vocab,
                special=self.special,
                share=self.share,
            )
            for i, text in enumerate(examples)
        ]
        damaged, asked = [m.ids for m in hidden], [m.labels for m in hidden]
        return TextBatch(padded(damaged, self.pad), real(damaged), padded(asked, NOTHING))

    def summed(self, model: AnyModel, batch: TextBatch, smoothing: Smoothing) -> Tensor:
        if not isinstance(model, SingleModel):
            raise InputError("masked language modelling needs a model with one tower")
        return token_loss(model, model.states(batch.ids_BT, batch.mask_BT), batch.labels_BT, smoothing)

    @torch.no_grad()
    def measures(self, model: AnyModel, split: str) -> dict[str, float]:
        """How many hidden words are guessed."""
        assert isinstance(model, SingleModel)
        right = count = 0
        total = 0.0
        for batch in self.batches(split):
            where = batch.labels_BT != NOTHING
            guess = model(batch.ids_BT, batch.mask_BT)[where]
            right += int((guess.argmax(-1) == batch.labels_BT[where]).sum())
            total += float(Smoothing().loss(guess, batch.labels_BT[where]))
            count += int(where.sum())
        return {"accuracy": 100 * right / count, "perplexity": math.exp(min(total / count, 700.0))}

    def samples(self, model: AnyModel) -> list[str]:
        return []
