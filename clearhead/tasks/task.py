"""The interface of a task: batches by step, the loss of a batch, the scores of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeVar

from torch import Tensor

from ..nn import TransformerModel


class Batch(Protocol):
    """A batch of a task. The trainer needs only its number of targets."""

    @property
    def targets(self) -> int:
        """The number of targets its loss is a sum over, padding excluded."""


class Better(NamedTuple):
    """The score by which models are compared."""

    metric: str
    larger: bool  # accuracy: True; loss and perplexity: False


B = TypeVar("B", bound=Batch)


class Task(Protocol[B]):
    """What is learned. A task has no position and no random state: the same step gives the same batch."""

    @property
    def better(self) -> Better: ...

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """What its batches depend on: data files with their hashes, settings with their values."""

    def batch(self, step: int, micro: int) -> B:
        """The micro-batch numbered `micro`, from 0, of a step; steps count from 1."""

    def loss(self, model: TransformerModel, batch: B) -> Tensor:
        """The *sum* of the losses over the real targets, not their mean: the trainer divides by the count
        of all parts, so that many small batches of ragged lengths are one large one.
        """

    def score(self, model: TransformerModel, split: str) -> Mapping[str, float]:
        """Scores by name on a split such as "valid"; one of them is `better.metric`."""

    def samples(self, model: TransformerModel) -> list[str]:
        """A few lines that show what the model does at this point; may be none."""
