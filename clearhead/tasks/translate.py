"""Text to text: translation, summaries, repair. Pairs of ids in; loss, BLEU, chrF, ROUGE and exact match out.

The decoder is fed the answer shifted right behind a start token and asked for the answer and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from ..data.order import draws
from ..data.packing import NOTHING
from ..errors import InputError
from ..nn.model import PairModel
from .bucketed import AnyModel, Bucketed
from .losses import Smoothing, token_loss
from .metrics import text_scores
from .padded import padded, real
from .task import Better

Decode = Callable[[PairModel, Tensor, Tensor, int], list[list[int]]]  # source, its mask, limit -> ids
Corrupt = Callable[[Sequence[int], Random], tuple[list[int], list[int]]]  # a text -> (damaged, answer)


@dataclass(frozen=True)
class Pair:
    source: Sequence[int]
    target: Sequence[int]
    reference: str | None = None  # the answer as it was written, for scores; None: what its ids decode to


@dataclass(frozen=True)
class PairBatch:
    source_BT: Tensor
    mask_BT: Tensor
    target_BT: Tensor  # what the decoder is fed
    labels_BT: Tensor

    @property
    def targets(self) -> int:
        return int((self.labels_BT != NOTHING).sum())


@dataclass(frozen=True)
class Ids:
    """The tokens a pair is framed with."""

    pad: int
    start: int
    end: int


class TextToText(Bucketed[Pair, PairBatch]):
    """`corrupt` makes pairs of plain texts anew each time they come (T5, BART); without it they are given."""

    def __init__(
        self,
        splits: Mapping[str, Sequence[Pair]],
        *,
        ids: Ids,
        tokens: int,
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
            splits, tokens=tokens, seed=seed, parts=parts, smoothing=spread, fingerprint=fingerprint
        )

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    def size(self, example: Pair) -> tuple[int, ...]:
        return len(example.source) + 1, len(example.target) + 1

    def collate(self, examples: Sequence[Pair], key: int) -> PairBatch:
        if self.corrupt is not None:
            pairs = [
                self.corrupt(x.source, draws(self.seed, "corrupt", key, i)) for i, x in enumerate(examples)
            ]
            examples = [Pair(source, target) for source, target in pairs]
        sources = [[*x.source, self.ids.end] for x in examples]
        fed = [[self.ids.start, *x.target] for x in examples]
        asked = [[*x.target, self.ids.end] for x in examples]
        return PairBatch(
            padded(sources, self.ids.pad), real(sources), padded(fed, self.ids.pad), padded(asked, NOTHING)
        )

    def summed(self, model: AnyModel, batch: PairBatch, smoothing: Smoothing) -> Tensor:
        if not isinstance(model, PairModel):
            raise InputError("text to text needs a model with an encoder and a decoder")
        memory = model.encode(batch.source_BT, batch.mask_BT)
        # Padding behind the target needs no mask: nobody looks ahead, and it has no label.
        return token_loss(model, model.decode(batch.target_BT, memory), batch.labels_BT, smoothing)

    def measures(self, model: AnyModel, split: str) -> dict[str, float]:
        if self.decode is None or self.text is None:
            return {}
        assert isinstance(model, PairModel)
        said: list[str] = []
        wanted: list[str] = []
        for batch, rows in zip(self.batches(split), self.order(split), strict=True):
            limit = 2 * batch.labels_BT.shape[1] + 8
            said += [self.text(ids) for ids in self.decode(model, batch.source_BT, batch.mask_BT, limit)]
            wanted += [self._reference(self.splits[split][i], self.text) for i in rows]
        return text_scores(said, wanted, self.language)

    @staticmethod
    def _reference(pair: Pair, text: Callable[[Sequence[int]], str]) -> str:
        """The written text: its ids may lack characters that the vocabulary does not know."""
        return text(pair.target) if pair.reference is None else pair.reference

    @torch.no_grad()
    def samples(self, model: AnyModel) -> list[str]:
        """The first three held-out texts, and what the model says to them by now."""
        if self.decode is None or self.text is None or "valid" not in self.splits:
            return []
        assert isinstance(model, PairModel)
        shown = list(self.splits["valid"][:3])
        batch = self.collate(shown, key=0)
        said = self.decode(model, batch.source_BT, batch.mask_BT, 2 * batch.labels_BT.shape[1] + 8)
        return [f"{self.text(x.source)} → {self.text(ids)}" for x, ids in zip(shown, said, strict=True)]
