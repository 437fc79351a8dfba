"""The state of a run between two steps: numbers and tensors, out to files and back, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import LoadError
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
    scale: float = 1.0  # what the loss is multiplied by, in float16
    steady: int = 0  # steps since the scale changed
    retried: int = 0  # steps computed again at a smaller scale

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> State:
        if data.keys() != State.__dataclass_fields__.keys():
            raise LoadError(f"state.json has {sorted(data)}; expected {sorted(State.__dataclass_fields__)}")
        return State(**data)


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
    for full, value in stored.items():
        name, _, key = full.removeprefix("optimizer.").rpartition("/")
        if name not in parameters:
            raise LoadError(f"state.safetensors has moments of {name!r}, which is not trained here")
        # A count of steps stays where torch keeps it, on the CPU.
        device = value.device if value.ndim == 0 else parameters[name].device
        optimizer.state[parameters[name]][key] = value.to(device, copy=True)


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
