"""The state of a run between two steps: numbers and tensors, saved and restored bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import LoadError, quoted
from ..weights import StateDict as Tensors
from .average import Ema, trainable_parameters


@dataclass
class TrainingState:
    """The progress of a run. With weights, optimizer state and settings it determines all later steps."""

    step: int = 0  # steps taken
    tokens: int = 0  # real targets seen
    best: float | None = None  # the best score so far
    best_step: int | None = None
    waited: int = 0  # validations since the best one
    scored: int = 0  # the step of the last validation counted in `best` and `waited`
    scale: float = 1.0  # the loss scale, in float16
    steady: int = 0  # steps since the scale changed
    retried: int = 0  # steps computed again at a smaller scale

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> TrainingState:
        # Older versions validated before they wrote a checkpoint and had no `scored`.
        data = {"scored": data.get("step"), **data}
        if data.keys() != TrainingState.__dataclass_fields__.keys():
            raise LoadError(
                f"state.json has {sorted(data)}; expected {sorted(TrainingState.__dataclass_fields__)}"
            )
        for name, value in data.items():
            if not _is_valid(name, value):
                raise LoadError(
                    f"state.json says {name} is {quoted(value)}, which is impossible; the file is damaged"
                )
        return TrainingState(**data)


def _is_valid(name: str, value: Any) -> bool:
    """Counts are ints from 0; scores and scales are finite floats; `best` may not be known yet."""
    if name in ("best", "best_step") and value is None:
        return True
    if name in ("best", "scale"):
        return type(value) is float and math.isfinite(value) and (name == "best" or value > 0)
    return type(value) is int and 0 <= value < 2**63


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """The optimizer's state under the names of the parameters: `optimizer.NAME/exp_avg`."""
    return {
        f"optimizer.{name}/{key}": value
        for name, parameter in trainable_parameters(model).items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, stored: Mapping[str, Tensor]
) -> None:
    """The inverse of `optimizer_tensors`."""
    parameters = trainable_parameters(model)
    expected = _state_keys(optimizer)
    restored: dict[str, set[str]] = {}
    for full, value in stored.items():
        name, _, key = full.removeprefix("optimizer.").rpartition("/")
        if name not in parameters:
            raise LoadError(f"state.safetensors has moments of {quoted(name)}, which is not trained here")
        parameter = parameters[name]
        shape = () if key == "step" else parameter.shape
        dtype = torch.float32 if key == "step" else parameter.dtype
        if key not in expected or value.shape != shape or value.dtype != dtype:
            raise LoadError(
                f"state.safetensors has {quoted(key)} of {name}, which this optimiser does not have"
            )
        restored.setdefault(name, set()).add(key)
        # torch keeps the step count on the CPU.
        device = value.device if value.ndim == 0 else parameter.device
        optimizer.state[parameter][key] = value.to(device, copy=True)
    for name, keys in restored.items():
        if keys != expected:
            missing = ", ".join(sorted(expected - keys))
            raise LoadError(f"state.safetensors lacks {missing} of {name}")


def _state_keys(optimizer: torch.optim.Optimizer) -> set[str]:
    """The keys of torch's optimizer state for a parameter that has had a gradient."""
    if isinstance(optimizer, torch.optim.SGD):
        return {"momentum_buffer"}
    return {"step", "exp_avg", "exp_avg_sq"}


def ema_tensors(ema: Ema | None) -> Tensors:
    return {} if ema is None else {f"ema.{name}": x for name, x in ema.means.items()}


@torch.no_grad()
def load_weights(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy weights into a model: those that are trained, and any other of its own."""
    own = dict(model.named_parameters())
    missing = {*trainable_parameters(model)} - state.keys()
    if different := sorted(missing or state.keys() - own.keys()):
        raise LoadError(f"the checkpoint is of another model; first difference: {different[0]}")
    for name, x in state.items():
        if own[name].shape != x.shape:
            raise LoadError(f"{name} is {tuple(x.shape)} in the checkpoint and {tuple(own[name].shape)} here")
        own[name].copy_(x)
