"""The base of tasks over separate examples: bucketed batches as a function of the step, and the mean loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ..data import Buckets, pad
from ..errors import DataError
from ..nn import TransformerModel
from .losses import Smoothing
from .outcomes import Evaluation
from .task import B, on_device

E = TypeVar("E")


class BucketedTask(ABC, Generic[E, B]):
    """`splits` are examples by name, "train" among them; `tokens` is the padded size of a batch.

    `pad` is the id that rows are padded with. `rows` limits the rows of a batch, too. `parts` is how many
    batches make one step of the trainer (its `micro`).
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[E]],
        *,
        tokens: int,
        pad: int = 0,
        rows: int | None = None,
        seed: int = 0,
        parts: int = 1,
        smoothing: Smoothing | None = None,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        for name, examples in splits.items():
            if not examples:
                raise DataError(f"the split {name!r} has no usable rows")
        self.splits, self.parts, self.seed, self.pad = splits, parts, seed, pad
        self.smoothing = smoothing or Smoothing()
        self._plans = {
            name: Buckets([self.size(example) for example in examples], tokens=tokens, rows=rows, seed=seed)
            for name, examples in splits.items()
        }
        # Saved with a run and compared when it is resumed, so names and texts must stay as they are.
        settings = {
            "tokens": str(tokens),
            "seed": str(seed),
            "parts": str(parts),
            "smoothing": str(self.smoothing),
        }
        if rows is not None:
            settings["rows"] = str(rows)
        self.fingerprint = {**settings, **(fingerprint or {})}

    @abstractmethod
    def size(self, example: E) -> tuple[int, ...]:
        """The number of tokens of each side of an example."""

    @abstractmethod
    def collate(self, examples: Sequence[E], key: int) -> B:
        """A batch of these examples; `key`, the number of the batch, seeds what is random in it."""

    @abstractmethod
    def summed_loss(self, model: TransformerModel, batch: B, smoothing: Smoothing) -> Tensor:
        """The loss of a batch, summed over its targets."""

    def metrics(self, model: TransformerModel, split: str) -> dict[str, float]:
        """The scores besides the loss, for tasks that have no `evaluate` of their own."""
        return {}

    @property
    def steps_per_epoch(self) -> float:
        return len(self._plans["train"]) / self.parts

    def batch(self, step: int, micro: int) -> B:
        number = (step - 1) * self.parts + micro + 1
        rows = self._plans["train"].batch(number)
        return self.collate([self.splits["train"][int(i)] for i in rows], key=number)

    def largest_batch(self) -> B:
        """The batch of the first epoch with the most tokens, padding included: what memory must hold."""
        examples = self.splits["train"]

        def padded(rows: list[int]) -> int:
            longest = [max(side) for side in zip(*(self.size(examples[i]) for i in rows), strict=True)]
            return len(rows) * int(sum(longest))

        return self.collate([examples[i] for i in max(self.order("train"), key=padded)], key=1)

    def loss(self, model: TransformerModel, batch: B) -> Tensor:
        return self.summed_loss(model, batch, self.smoothing)

    @torch.no_grad()
    def score(self, model: TransformerModel, split: str) -> dict[str, float]:
        """The mean loss per target, without smoothing, and the metrics of the task."""
        if split not in self.splits:
            raise DataError(f"there is no split {split!r}; there are {', '.join(self.splits)}")
        return dict(self.evaluate(model, split).scores)

    def batches(self, split: str, model: TransformerModel | None = None) -> Iterator[B]:
        """Every example of a split once, always in the same batches; with a model, on its device."""
        for number, rows in enumerate(self._plans[split].plan(0)):
            batch = self.collate([self.splits[split][int(i)] for i in rows], key=-1 - number)
            yield batch if model is None else on_device(batch, model)

    def order(self, split: str) -> Iterator[list[int]]:
        """The indices of the examples in each batch of `batches`."""
        for rows in self._plans[split].plan(0):
            yield [int(i) for i in rows]

    def numbered_batches(self, model: TransformerModel, split: str) -> Iterator[tuple[list[int], B]]:
        """The batches of a split for this model, each with the indices of its examples."""
        return zip(self.order(split), self.batches(split, model), strict=True)

    @torch.no_grad()
    def evaluate(self, model: TransformerModel, split: str) -> Evaluation:
        """The mean loss and the metrics; tasks that know the outcome of each example give these, too."""
        return Evaluation({"loss": self.mean_loss(model, split), **self.metrics(model, split)})

    def mean_loss(self, model: TransformerModel, split: str) -> float:
        """Per target, without smoothing."""
        total, count = 0.0, 0
        for batch in self.batches(split):
            count += batch.targets  # counted before it moves: a device would have to be waited for
            total += float(self.summed_loss(model, on_device(batch, model), Smoothing()))
        return total / count


def segment_types(model: TransformerModel, types_BT: Tensor | None) -> Tensor | None:
    """The types of a pair of texts, for a model that distinguishes them; others read both texts alike."""
    return types_BT if model.spec.head_tower.types > 1 else None


def pad_ids(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    """(B, T): the rows, padded on the right with `filler`."""
    return torch.from_numpy(pad(rows, filler)[0])


def padding_mask(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, T): 1 for tokens, 0 for padding."""
    return torch.from_numpy(pad(rows, 0)[1]).long()
