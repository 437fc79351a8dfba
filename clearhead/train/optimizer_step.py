"""One optimizer step: its batch in, updated weights out; if a number is not finite, nothing changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from ..errors import TrainError
from ..nn import Model, RouterModule, Tower, TransformerModel
from ..tasks import Batch, Task, input_tokens, on_device
from .average import trainable_parameters
from .determinism import seeded
from .expert_balance import ExpertBalance
from .settings import Training
from .state import TrainingState

ShouldStop = Callable[[], bool]  # asked before every micro-batch
# Loss scaling for float16: its largest value, and the steps without overflow after which it doubles.
MAX_LOSS_SCALE, SCALE_GROWTH_INTERVAL = 2.0**16, 2000


@dataclass(frozen=True)
class StepMetrics:
    loss: float  # the mean over all real targets of the step
    lr: float
    grad_norm: float  # before clipping
    targets: int
    inputs: int = 0  # input tokens without padding
    # Of a model with experts: 1 if all of them are used alike, more the less they are; see `expert_balance`.
    router_aux_loss: float | None = None
    router_z_loss: float | None = None


@dataclass(frozen=True)
class GradientMetrics:
    """What is known of a step once its gradient is computed: a part of `StepMetrics`."""

    loss: float
    targets: int
    inputs: int
    router_aux_loss: float | None = None
    router_z_loss: float | None = None


class NonFiniteError(Exception):
    """Names the first tensor that is not finite; raised before any weight has changed.

    Internal: the training loop turns it into a `TrainingStopped`.
    """

    def __init__(self, tensor: str, value: float) -> None:
        super().__init__(f"{tensor} is {value}")
        self.tensor, self.value = tensor, value


def hidden_size(spec: Model) -> int:
    """The width that schedules such as Noam scale by: the decoder's, where there are two towers."""
    return [node.width for node in spec.nodes() if isinstance(node, Tower)][-1]


class OptimizerStep:
    """Computes the gradient of a step in micro-batches, and lets the optimizer update the weights."""

    def __init__(self, model: TransformerModel, task: Task[Any], training: Training, width: int) -> None:
        self.model, self.task, self.training, self.width = model, task, training, width
        self.parameters = trainable_parameters(model)
        if not self.parameters:
            raise TrainError("no parameter of this model is to be trained; all are frozen")
        self.device = next(iter(self.parameters.values())).device
        self.optimizer = training.optimizer.build(model)
        self.balance = ExpertBalance.of(model, training)
        self.load: dict[RouterModule, Tensor] = {}  # tokens per expert, of the step that is computed
        self.uses_loss_scale = training.precision == "float16"
        if training.precision != "float32" and not torch.amp.is_autocast_available(self.device.type):
            raise TrainError(f"{self.device.type} cannot train in {training.precision}; choose float32")

    def run(self, step: int, state: TrainingState, should_stop: ShouldStop) -> StepMetrics | None:
        """Compute gradients, clip them, update the weights. Nothing is changed, and None
        returned, if `should_stop` returned True.
        """
        while True:
            gradient = self.compute_gradients(step, state.scale, should_stop)
            if gradient is None:
                return None
            total_norm = get_total_norm(
                [p.grad for p in self._parameters_with_gradient() if p.grad is not None]
            )
            norm = float(total_norm)
            if math.isfinite(norm):
                break
            if not self.uses_loss_scale or state.scale <= 1:
                raise self._non_finite_gradient(norm)
            # Overflow in float16: the same batch again with half the loss scale. No batch is skipped.
            state.scale, state.steady, state.retried = state.scale / 2, 0, state.retried + 1
        if self.training.clip is not None:
            clip_grads_with_norm_(self._parameters_with_gradient(), self.training.clip, total_norm)
        lr = self.training.rate(self.width, step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        if self.balance is not None:
            self.balance.update_biases(self.load)
        self.optimizer.zero_grad(set_to_none=True)
        state.steady += 1
        if self.uses_loss_scale and state.steady == SCALE_GROWTH_INTERVAL and state.scale < MAX_LOSS_SCALE:
            state.scale, state.steady = state.scale * 2, 0
        return StepMetrics(lr=lr, grad_norm=norm, **vars(gradient))

    def compute_gradients(self, step: int, scale: float, should_stop: ShouldStop) -> GradientMetrics | None:
        """Accumulate the gradient of the mean loss over all micro-batches; returns None if `should_stop`
        returned True.
        """
        self.optimizer.zero_grad(set_to_none=True)
        batches = [self.task.batch(step, micro) for micro in range(self.training.micro)]
        targets = sum(batch.targets for batch in batches)
        if targets == 0:
            raise TrainError(f"step {step} has no real target in any of its {len(batches)} batches")
        total, router = 0.0, dict[str, float]()
        self.load = {}
        for micro, batch in enumerate(batches):
            if should_stop():
                self.optimizer.zero_grad(set_to_none=True)
                return None
            if batch.targets == 0:
                continue
            with seeded(self.device, self.training.seed, "dropout", step, micro):
                with self.autocast():
                    loss, added = self._loss(batch, batch.targets / targets, router)
                value = float(loss.detach())
                if not math.isfinite(value):
                    self.optimizer.zero_grad(set_to_none=True)
                    raise NonFiniteError("loss", value)
                mean = loss / targets if added is None else loss / targets + added
                (mean * scale if self.uses_loss_scale else mean).backward()
            total += value
        if self.uses_loss_scale:
            for parameter in self._parameters_with_gradient():
                assert parameter.grad is not None
                parameter.grad.div_(scale)
        inputs = sum(input_tokens(batch) for batch in batches)
        return GradientMetrics(total / targets, targets, inputs, **router)

    def _loss(self, batch: Batch, share: float, router: dict[str, float]) -> tuple[Tensor, Tensor | None]:
        """The loss of a micro-batch, summed over its targets; and what its experts add to the mean loss.

        Experts are balanced within a micro-batch; `share` is its weight in the mean over the step, by
        targets. `router` collects that mean of the auxiliary losses.
        """
        moved = on_device(batch, self.model)
        if self.balance is None:
            return self.task.loss(self.model, moved), None
        routed = self.balance.loss(lambda model: self.task.loss(model, moved))
        for name, value in routed.metrics.items():
            router[name] = router.get(name, 0.0) + share * value
        for module, load_E in routed.load.items():
            self.load[module] = self.load[module] + load_E if module in self.load else load_E
        return routed.task, routed.router * share

    def autocast(self) -> AbstractContextManager[Any]:
        if self.training.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.training.precision))

    def _parameters_with_gradient(self) -> list[nn.Parameter]:
        return [p for p in self.parameters.values() if p.grad is not None]

    def _non_finite_gradient(self, norm: float) -> NonFiniteError:
        """The first parameter whose gradient is not finite, or the norm if only the norm overflowed."""
        for name, parameter in self.parameters.items():
            if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
                bad_values = parameter.grad[~parameter.grad.isfinite()]
                self.optimizer.zero_grad(set_to_none=True)
                return NonFiniteError(name, float(bad_values[0]))
        self.optimizer.zero_grad(set_to_none=True)
        return NonFiniteError("the norm of all gradients", norm)
