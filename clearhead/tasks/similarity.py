"""Sentence embeddings: pairs of texts in; vectors whose cosine says how similar two texts are.

Pairs with a score are trained to have that cosine. Pairs without one belong together: each text is to be
closest to its own partner among all partners of the batch (in-batch negatives), so large batches teach more.
Shape suffixes: B pairs, N texts of all sides, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..nn import Pool, TransformerModel, pool_states
from .bucketed import BucketedTask, pad_ids, padding_mask
from .losses import Smoothing
from .metrics import correlation_scores
from .outcomes import Evaluation, ExampleOutcome, mean_loss
from .task import Better

SCALE = 20.0  # the cosines are multiplied by it before the softmax; the value of sentence-transformers


@dataclass(frozen=True)
class SimilarityExample:
    """Two texts with the cosine they should have; without a score, a negative may be the third text."""

    texts: Sequence[Sequence[int]]
    score: float | None = None


@dataclass(frozen=True)
class SimilarityBatch:
    ids_NT: Tensor  # all first texts, then all second ones, then all negatives
    mask_NT: Tensor
    scores_B: Tensor | None
    targets: int

    @property
    def tokens(self) -> int:
        return int(self.mask_NT.sum())


class TextSimilarity(BucketedTask[SimilarityExample, SimilarityBatch]):
    """`pool` is how a checkpoint pools: one of the pools of `nn`, or several, put side by side."""

    def __init__(
        self,
        splits: Mapping[str, Sequence[SimilarityExample]],
        *,
        pad: int,
        pool: Sequence[Pool] = ("mean",),
        tokens: int,
        rows: int | None = None,
        seed: int = 0,
        parts: int = 1,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        self.pool = tuple(pool)
        self.scored = splits["train"][0].score is not None
        super().__init__(
            splits, tokens=tokens, pad=pad, rows=rows, seed=seed, parts=parts, fingerprint=fingerprint
        )

    @property
    def better(self) -> Better:
        return Better("spearman" if self.scored else "accuracy", larger=True)

    def size(self, example: SimilarityExample) -> tuple[int, ...]:
        return (len(example.texts) * max(map(len, example.texts)),)

    def collate(self, examples: Sequence[SimilarityExample], key: int) -> SimilarityBatch:
        sides = range(min(len(x.texts) for x in examples))
        rows = [x.texts[side] for side in sides for x in examples]
        scores = [x.score for x in examples if x.score is not None]
        scores_B = torch.tensor(scores, dtype=torch.float32) if self.scored else None
        return SimilarityBatch(pad_ids(rows, self.pad), padding_mask(rows), scores_B, len(examples))

    def summed_loss(self, model: TransformerModel, batch: SimilarityBatch, smoothing: Smoothing) -> Tensor:
        first_BD, *others = self._sides(model, batch)
        if batch.scores_B is not None:
            return F.mse_loss((first_BD * others[0]).sum(-1), batch.scores_B, reduction="sum")
        partners = torch.arange(len(first_BD), device=first_BD.device)
        return F.cross_entropy(SCALE * first_BD @ torch.cat(others).mT, partners, reduction="sum")

    @torch.no_grad()
    def metrics(self, model: TransformerModel, split: str) -> dict[str, float]:
        """How often the nearest second text is the right one, for pairs without a score."""
        sides = [self._sides(model, batch)[:2] for batch in self.batches(split, model)]
        first_MD, second_MD = (torch.cat(each).cpu() for each in zip(*sides, strict=True))
        nearest = (first_MD @ second_MD.mT).argmax(-1)
        found = (nearest == torch.arange(len(nearest))).double().mean()
        return {"accuracy": 100 * float(found)}

    @torch.no_grad()
    def evaluate(self, model: TransformerModel, split: str) -> Evaluation:
        """Scored pairs: cosines beside scores. Others have no outcomes."""
        if not self.scored:
            return super().evaluate(model, split)
        outcomes: list[ExampleOutcome] = []
        for rows, batch in self.numbered_batches(model, split):
            first_BD, second_BD, *_ = (side.cpu() for side in self._sides(model, batch))
            for i, cosine in zip(rows, (first_BD * second_BD).sum(-1).tolist(), strict=True):
                score = float(self.splits[split][i].score or 0.0)
                difference = abs(cosine - score)
                outcomes.append(
                    ExampleOutcome(i, f"{score:.9g}", f"{cosine:.9g}", difference, difference**2, 1)
                )
        outcomes.sort(key=lambda outcome: outcome.example)
        cosines = [float(outcome.prediction) for outcome in outcomes]
        scores = correlation_scores(cosines, [float(outcome.reference) for outcome in outcomes])
        return Evaluation({"loss": mean_loss(outcomes), **scores}, outcomes, "difference")

    def samples(self, model: TransformerModel) -> list[str]:
        return []

    def _sides(self, model: TransformerModel, batch: SimilarityBatch) -> list[Tensor]:
        """The vectors of length one of all first texts, all second ones, and all negatives."""
        if len(model.spec.towers) > 1:
            raise InputError("sentence vectors need a model with one tower")
        states = model.states(batch.ids_NT, batch.mask_NT)
        vectors_ND = torch.cat([pool_states(states.x_BTD, pool, states.real_BT) for pool in self.pool], -1)
        return list(torch.split(F.normalize(vectors_ND.float(), dim=-1), batch.targets))
