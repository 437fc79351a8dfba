"""One update: the batch of a step in, changed weights out; or, if a number is not finite, nothing changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from ..errors import TrainError
from ..nn.model import PairModel, SingleModel
from ..tasks import Task
from .average import trained
from .exact import seeded
from .settings import Training
from .state import State

Halt = Callable[[], bool]
LARGEST, GROWTH = 2.0**16, 2000  # of the loss scale, and the steps without overflow before it doubles


@dataclass(frozen=True)
class Measured:
    loss: float  # the mean over all real targets of the step
    lr: float
    grad_norm: float  # before clipping
    targets: int


class NotFinite(Exception):  # noqa: N818 (a message between two rooms, never shown)
    """The first tensor that is not finite; raised before any weight has changed."""

    def __init__(self, tensor: str, value: float) -> None:
        super().__init__(f"{tensor} is {value}")
        self.tensor, self.value = tensor, value


class Update:
    def __init__(
        self, model: SingleModel | PairModel, task: Task[Any], training: Training, width: int
    ) -> None:
        self.model, self.task, self.training, self.width = model, task, training, width
        self.parameters = trained(model)
        if not self.parameters:
            raise TrainError("no parameter of this model is to be trained; all are frozen")
        self.device = next(iter(self.parameters.values())).device
        self.optimizer = training.optimizer.build(model)
        self.scaled = training.precision == "float16"
        if training.precision != "float32" and not torch.amp.is_autocast_available(self.device.type):
            raise TrainError(f"{self.device.type} cannot train in {training.precision}; choose float32")

    def take(self, step: int, state: State, halt: Halt) -> Measured | None:
        """The update of a step; None if `halt` said so, and then nothing has changed."""
        while True:
            found = self.gradients(step, state.scale, halt)
            if found is None:
                return None
            total = get_total_norm([p.grad for p in self._with_gradient() if p.grad is not None])
            norm = float(total)
            if math.isfinite(norm):
                break
            if not self.scaled or state.scale <= 1:
                raise self._bad(norm)
            # Too large for float16: the same batch again, with a smaller factor. No batch is left out.
            state.scale, state.steady, state.retried = state.scale / 2, 0, state.retried + 1
        if self.training.clip is not None:
            clip_grads_with_norm_(self._with_gradient(), self.training.clip, total)
        lr = self.training.rate(self.width, step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        state.steady += 1
        if self.scaled and state.steady == GROWTH and state.scale < LARGEST:
            state.scale, state.steady = state.scale * 2, 0
        return Measured(found[0], lr, norm, found[1])

    def gradients(self, step: int, scale: float, halt: Halt) -> tuple[float, int] | None:
        """Fill the gradients of the mean loss over all parts of a batch; give that loss and the count."""
        self.optimizer.zero_grad(set_to_none=True)
        batches = [self.task.batch(step, micro) for micro in range(self.training.micro)]
        targets = sum(batch.targets for batch in batches)
        if targets == 0:
            raise TrainError(f"step {step} has no real target in any of its {len(batches)} batches")
        total = 0.0
        for micro, batch in enumerate(batches):
            if halt():
                self.optimizer.zero_grad(set_to_none=True)
                return None
            if batch.targets == 0:
                continue
            with seeded(self.device, self.training.seed, "dropout", step, micro):
                with self.autocast():
                    loss = self.task.loss(self.model, batch)
                value = float(loss.detach())
                if not math.isfinite(value):
                    self.optimizer.zero_grad(set_to_none=True)
                    raise NotFinite("loss", value)
                (loss / targets * scale if self.scaled else loss / targets).backward()
            total += value
        if self.scaled:
            for parameter in self._with_gradient():
                assert parameter.grad is not None
                parameter.grad.div_(scale)
        return total / targets, targets

    def autocast(self) -> AbstractContextManager[Any]:
        if self.training.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.training.precision))

    def _with_gradient(self) -> list[nn.Parameter]:
        return [p for p in self.parameters.values() if p.grad is not None]

    def _bad(self, norm: float) -> NotFinite:
        """The first parameter whose gradient is not finite; none, if only their sum of squares is not."""
        for name, parameter in self.parameters.items():
            if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
                odd = parameter.grad[~parameter.grad.isfinite()]
                self.optimizer.zero_grad(set_to_none=True)
                return NotFinite(name, float(odd[0]))
        self.optimizer.zero_grad(set_to_none=True)
        return NotFinite("the norm of all gradients", norm)
