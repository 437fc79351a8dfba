"""Text to text: translation, summaries, denoising. Pairs of ids in; loss, BLEU, chrF, ROUGE, exact match out.

The decoder reads the target shifted right behind a start token, and predicts the target and its end token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from ..data import IGNORE_INDEX, generator_for
from ..errors import InputError
from ..nn import States, TransformerModel
from .bucketed import BucketedTask, pad_ids, padding_mask
from .losses import Smoothing, token_loss
from .metrics import sentence_chrf, text_scores
from .outcomes import Evaluation, ExampleOutcome, losses_of_rows, mean_loss
from .task import Better, on_device

Decode = Callable[[TransformerModel, Tensor, Tensor, int], list[list[int]]]  # source, its mask, limit -> ids
Corrupt = Callable[[Sequence[int], Random], tuple[list[int], list[int]]]  # a text -> source, target


@dataclass(frozen=True)
class TextPair:
    source: Sequence[int]  # with the special tokens that the encoder expects
    target: Sequence[int]  # without
    reference: str | None = None  # the target as written, for scores; None: what its ids decode to


@dataclass(frozen=True)
class PairBatch:
    source_BT: Tensor
    mask_BT: Tensor
    target_BT: Tensor  # the decoder's input
    labels_BT: Tensor

    @property
    def tokens(self) -> int:
        return int(self.mask_BT.sum()) + self.targets  # the decoder reads as many tokens as it predicts

    @property
    def targets(self) -> int:
        return int((self.labels_BT != IGNORE_INDEX).sum())


@dataclass(frozen=True)
class SpecialIds:
    """The special tokens around source and target."""

    pad: int
    start: int
    end: int


class TextToText(BucketedTask[TextPair, PairBatch]):
    """`corrupt` makes a new pair of a plain text, its target, in every epoch (T5, BART)."""

    def __init__(
        self,
        splits: Mapping[str, Sequence[TextPair]],
        *,
        ids: SpecialIds,
        tokens: int,
        rows: int | None = None,
        text: Callable[[Sequence[int]], str] | None = None,
        decode: Decode | None = None,
        language: str = "en",
        corrupt: Corrupt | None = None,
        seed: int = 0,
        parts: int = 1,
        smoothing: float = 0.0,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.ids, self.text, self.decode, self.language, self.corrupt = ids, text, decode, language, corrupt
        spread = Smoothing(smoothing, unreal=(ids.pad,))
        super().__init__(
            splits,
            tokens=tokens,
            rows=rows,
            seed=seed,
            parts=parts,
            smoothing=spread,
            fingerprint=fingerprint,
        )

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    def size(self, example: TextPair) -> tuple[int, ...]:
        return len(example.source), len(example.target) + 1

    def collate(self, examples: Sequence[TextPair], key: int) -> PairBatch:
        if self.corrupt is not None:
            pairs = [
                self.corrupt(x.target, generator_for(self.seed, "corrupt", key, i))
                for i, x in enumerate(examples)
            ]
            examples = [TextPair(source, target) for source, target in pairs]
        sources = [x.source for x in examples]
        inputs = [[self.ids.start, *x.target] for x in examples]
        labels = [[*x.target, self.ids.end] for x in examples]
        return PairBatch(
            pad_ids(sources, self.ids.pad),
            padding_mask(sources),
            pad_ids(inputs, self.ids.pad),
            pad_ids(labels, IGNORE_INDEX),
        )

    def summed_loss(self, model: TransformerModel, batch: PairBatch, smoothing: Smoothing) -> Tensor:
        if not model.spec.is_encoder_decoder:
            raise InputError("text to text needs a model with an encoder and a decoder")
        return token_loss(model, _states(model, batch), batch.labels_BT, smoothing)

    @torch.no_grad()
    def evaluate(self, model: TransformerModel, split: str) -> Evaluation:
        """Without a decoder of its own (denoising) the outcomes have a loss and no texts."""
        outcomes: list[ExampleOutcome] = []
        for rows, batch in self.numbered_batches(model, split):
            losses = losses_of_rows(model, _states(model, batch), batch.labels_BT)
            targets = (batch.labels_BT != IGNORE_INDEX).sum(1).tolist()
            texts = self._texts(model, batch, [self.splits[split][i] for i in rows])
            for i, (reference, prediction), loss, count in zip(rows, texts, losses, targets, strict=True):
                error = loss / count if self.text is None else 100 - sentence_chrf(prediction, reference)
                outcomes.append(ExampleOutcome(i, reference, prediction, error, loss, count))
        outcomes.sort(key=lambda outcome: outcome.example)
        scores = {"loss": mean_loss(outcomes)}
        if self.text is None:
            return Evaluation(scores, outcomes)
        predictions, references = [o.prediction for o in outcomes], [o.reference for o in outcomes]
        return Evaluation(
            scores | text_scores(predictions, references, self.language), outcomes, "100 - chrF"
        )

    def _texts(
        self, model: TransformerModel, batch: PairBatch, pairs: Sequence[TextPair]
    ) -> list[tuple[str, str]]:
        """The reference and the prediction of each pair."""
        if self.decode is None or self.text is None:
            return [("", "")] * len(pairs)
        limit = 2 * batch.labels_BT.shape[1] + 8
        predictions = self.decode(model, batch.source_BT, batch.mask_BT, limit)
        return [
            (self._reference(pair, self.text), self.text(ids))
            for pair, ids in zip(pairs, predictions, strict=True)
        ]

    @staticmethod
    def _reference(pair: TextPair, text: Callable[[Sequence[int]], str]) -> str:
        """The text as written: its ids may lack characters that are not in the vocabulary."""
        return text(pair.target) if pair.reference is None else pair.reference

    @torch.no_grad()
    def samples(self, model: TransformerModel) -> list[str]:
        """The first three held-out sources, and what the model generates for them."""
        if self.decode is None or self.text is None or "valid" not in self.splits:
            return []
        shown = list(self.splits["valid"][:3])
        batch = on_device(self.collate(shown, key=0), model)
        predictions = self.decode(model, batch.source_BT, batch.mask_BT, 2 * batch.labels_BT.shape[1] + 8)
        return [
            f"{self.text(x.source)} → {self.text(ids)}" for x, ids in zip(shown, predictions, strict=True)
        ]


def _states(model: TransformerModel, batch: PairBatch) -> States:
    encoded = model.encode(batch.source_BT, batch.mask_BT)
    # Padding after the target needs no mask: the decoder is causal, and padding has no label. But experts
    # are balanced over real tokens, so they must know which these are.
    real_BT = (batch.labels_BT != IGNORE_INDEX).long() if model.spec.has_experts else None
    return model.decode(batch.target_BT, encoded, real_BT)
