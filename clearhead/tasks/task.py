"""The interface of a task: batches by step, the loss of a batch, the scores of a model.

A task builds its batches on the CPU. `on_device` is the one place where they move to where a model is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor

from ..errors import InputError
from ..nn import TransformerModel


class Batch(Protocol):
    """A batch of a task: a dataclass of tensors. The trainer needs only its number of targets.

    A property `tokens`, the number of input tokens without padding, is optional; speed is shown in it.
    """

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


def on_device(batch: B, model: TransformerModel) -> B:
    """The batch with its tensors on the device of the model; itself if the model is on the CPU."""
    device = model_device(model)
    if device.type == "cpu":
        return batch
    content: Any = batch
    if not is_dataclass(content):
        raise InputError(f"a batch must be a dataclass to move to {device}; given {type(batch).__name__}")
    values = {field.name: getattr(content, field.name) for field in fields(content)}
    moved = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
    return cast("B", replace(content, **moved))  # type: ignore[type-var]


def model_device(model: TransformerModel) -> torch.device:
    """Where the weights of a model are."""
    return next(model.parameters()).device


def input_tokens(batch: Batch) -> int:
    """The input tokens of a batch without padding; its targets, if it does not count them."""
    return int(getattr(batch, "tokens", batch.targets))
