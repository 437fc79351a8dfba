"""A task: numbers in, batches out; a batch in, the sum of its losses out; a model in, its scores out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeVar

from torch import Tensor

from ..nn.model import PairModel, SingleModel


class Batch(Protocol):
    """Whatever a task makes and reads; the trainer asks it one thing only."""

    @property
    def targets(self) -> int:
        """How many real target tokens its loss is a sum over; padding is not one."""


class Better(NamedTuple):
    """By which score two models are compared."""

    metric: str
    larger: bool  # accuracy: True; loss and perplexity: False


B = TypeVar("B", bound=Batch)


class Task(Protocol[B]):
    """What to learn. A task keeps no position and no random state: the same numbers give the same batch."""

    @property
    def better(self) -> Better: ...

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """What its batches depend on: names of data files and settings, with hashes or values."""

    def batch(self, step: int, micro: int) -> B:
        """The part numbered `micro`, from 0, of the batch of a step; steps count from 1."""

    def loss(self, model: SingleModel | PairModel, batch: B) -> Tensor:
        """The *sum* of the losses over the real targets, not their mean: the trainer divides by the count
        of all parts, so that many small batches of ragged lengths are one large one.
        """

    def score(self, model: SingleModel | PairModel, split: str) -> Mapping[str, float]:
        """Scores by name on a split such as "valid"; one of them is `better.metric`."""

    def samples(self, model: SingleModel | PairModel) -> list[str]:
        """A few lines that show what the model can do by now; may be none."""
