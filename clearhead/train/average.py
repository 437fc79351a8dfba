"""Averages of weights: an exponential moving average over all steps, or the mean of the last checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import LoadError
from ..weights import StateDict


class Ema:
    """An exponential moving average: mean <- decay * mean + (1 - decay) * weights, after every step."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.means = {name: p.detach().clone() for name, p in trainable_parameters(model).items()}

    @torch.no_grad()
    def restore(self, stored: Mapping[str, Tensor]) -> None:
        """Load the averages of a checkpoint; they must be of the same parameters in the same shapes."""
        shapes = {name: x.shape for name, x in stored.items()}
        if shapes != {name: x.shape for name, x in self.means.items()}:
            raise LoadError("state.safetensors holds running means of other parameters than are trained here")
        for name, x in stored.items():
            self.means[name].copy_(x)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for name, parameter in trainable_parameters(model).items():
            self.means[name].lerp_(parameter, 1 - self.decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model with the averages in place of its weights. Both are swapped; nothing is copied."""
        self._swap(model)
        try:
            yield
        finally:
            self._swap(model)

    def _swap(self, model: nn.Module) -> None:
        for name, parameter in trainable_parameters(model).items():
            parameter.data, self.means[name] = self.means[name], parameter.data


def average_weights(states: Iterable[Mapping[str, Tensor]]) -> StateDict:
    """The mean of several sets of weights, summed in float64; one set at a time is in memory."""
    sums: StateDict = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for state in states:
        if sums and state.keys() != sums.keys():
            raise LoadError("the checkpoints to average do not hold the same tensors")
        for name, x in state.items():
            wide = x.to(torch.float64)
            sums[name] = wide if count == 0 else sums[name] + wide
            dtypes[name] = x.dtype
        count += 1
    return {name: (x / count).to(dtypes[name]) for name, x in sums.items()}


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}
