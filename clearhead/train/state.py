"""The state of a run between two steps: numbers and tensors, out to files and back, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import LoadError, quoted
from ..weights import State as Tensors
from .average import Ema, trained


@dataclass
class State:
    """How far a run is. With weights, moments and settings it determines everything that follows."""

    step: int = 0  # steps taken
    tokens: int = 0  # real targets seen
    best: float | None = None  # the best score so far
    best_step: int | None = None
    waited: int = 0  # validations since then
    scored: int = 0  # the step of the last validation that is counted in these
    scale: float = 1.0  # what the loss is multiplied by, in float16
    steady: int = 0  # steps since the scale changed
    retried: int = 0  # steps computed again at a smaller scale

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> State:
        # Checkpoints of an older version were written after the validation of their step.
        data = {"scored": data.get("step"), **data}
        if data.keys() != State.__dataclass_fields__.keys():
            raise LoadError(f"state.json has {sorted(data)}; expected {sorted(State.__dataclass_fields__)}")
        for name, value in data.items():
            if not _fits(name, value):
                raise LoadError(f"state.json says {name} is {quoted(value)}, which no run can be at")
        return State(**data)


def _fits(name: str, value: Any) -> bool:
    """Counts are whole numbers from 0 on; scores and scales are finite; what has not come yet is nothing."""
    if name in ("best", "best_step") and value is None:
        return True
    if name in ("best", "scale"):
        return type(value) is float and math.isfinite(value) and (name == "best" or value > 0)
    return type(value) is int and 0 <= value < 2**63


def moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """What an optimiser remembers, under the names of the parameters: `optimizer.NAME/exp_avg`."""
    found: Tensors = {}
    for name, parameter in trained(model).items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                found[f"optimizer.{name}/{key}"] = value
    return found


def remember(model: nn.Module, optimizer: torch.optim.Optimizer, stored: Mapping[str, Tensor]) -> None:
    """The way back of `moments`."""
    parameters = trained(model)
    wanted = _names_of_moments(optimizer)
    found: dict[str, set[str]] = {}
    for full, value in stored.items():
        name, _, key = full.removeprefix("optimizer.").rpartition("/")
        if name not in parameters:
            raise LoadError(f"state.safetensors has moments of {quoted(name)}, which is not trained here")
        parameter = parameters[name]
        shape = () if key == "step" else parameter.shape
        dtype = torch.float32 if key == "step" else parameter.dtype
        if key not in wanted or value.shape != shape or value.dtype != dtype:
            raise LoadError(
                f"state.safetensors has {quoted(key)} of {name}, which is none of this optimiser's"
            )
        found.setdefault(name, set()).add(key)
        # A count of steps stays where torch keeps it, on the CPU.
        device = value.device if value.ndim == 0 else parameter.device
        optimizer.state[parameter][key] = value.to(device, copy=True)
    for name, keys in found.items():
        if keys != wanted:
            missing = ", ".join(sorted(wanted - keys))
            raise LoadError(f"state.safetensors lacks {missing} of {name}")


def _names_of_moments(optimizer: torch.optim.Optimizer) -> set[str]:
    """What torch's optimisers remember of a parameter once it has had a gradient."""
    if isinstance(optimizer, torch.optim.SGD):
        return {"momentum_buffer"}
    return {"step", "exp_avg", "exp_avg_sq"}


def means(ema: Ema | None) -> Tensors:
    return {} if ema is None else {f"ema.{name}": x for name, x in ema.means.items()}


@torch.no_grad()
def put(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy weights into a model; names and shapes must be its own, all of them or (EMA) the trained ones."""
    own = dict(model.named_parameters())
    wanted = [own.keys(), trained(model).keys()]
    if state.keys() not in wanted:
        odd = sorted(set(state) ^ set(own))
        raise LoadError(f"the checkpoint is of another model; first difference: {odd[0]}")
    for name, x in state.items():
        if own[name].shape != x.shape:
            raise LoadError(f"{name} is {tuple(x.shape)} in the checkpoint and {tuple(own[name].shape)} here")
        own[name].copy_(x)
