"""Optimizers: a spec and a model in, torch's optimizer over two parameter groups out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import SpecError
from ..spec import Spec

Groups = list[dict[str, Any]]


class Optimizer(Spec):
    """Which of torch's optimizers to use, with its settings."""

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov 2019)."""

    betas: tuple[float, float] = (0.9, 0.999)  # decay of the two moments
    eps: float = 1e-8  # added to the root of the second moment
    decay: float = 0.01  # weight decay of matrices; none for biases and norms

    def check(self) -> None:
        _check_adam(self.betas, self.eps)
        if not 0 <= self.decay < 1:
            raise SpecError(f"AdamW.decay is {self.decay}; expected 0 or more and below 1")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        groups = parameter_groups(model, self.decay)
        return torch.optim.AdamW(groups, betas=self.betas, eps=self.eps, fused=_fused(model))


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam without weight decay (Kingma 2015)."""

    betas: tuple[float, float] = (0.9, 0.999)  # decay of the two moments
    eps: float = 1e-8  # added to the root of the second moment

    def check(self) -> None:
        _check_adam(self.betas, self.eps)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        groups = parameter_groups(model, 0.0)
        return torch.optim.Adam(groups, betas=self.betas, eps=self.eps, fused=_fused(model))


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""

    momentum: float = 0.0  # share of the step before

    def check(self) -> None:
        if not 0 <= self.momentum < 1:
            raise SpecError(f"SGD.momentum is {self.momentum}; expected 0 or more and below 1")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        groups = parameter_groups(model, 0.0)
        return torch.optim.SGD(groups, lr=0.0, momentum=self.momentum, fused=_fused(model))


def parameter_groups(model: nn.Module, decay: float) -> Groups:
    """Weight decay for matrices and embedding tables; none for norms, biases and other vectors."""
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decayed = [p for name, p in trainable if p.ndim >= 2 and not name.endswith("bias")]
    undecayed = [p for name, p in trainable if p.ndim < 2 or name.endswith("bias")]
    groups = [{"params": decayed, "weight_decay": decay}, {"params": undecayed, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _fused(model: nn.Module) -> bool:
    """Whether torch has a fused step, one pass over memory: about three times as fast."""
    return all(p.device.type in ("cpu", "cuda") for p in model.parameters() if p.requires_grad)


def _check_adam(betas: tuple[float, float], eps: float) -> None:
    if not all(0 <= beta < 1 for beta in betas):
        raise SpecError(f"betas are {betas}; expected two numbers from 0 to below 1, such as (0.9, 0.999)")
    if not 0 < eps < 1:
        raise SpecError(f"eps is {eps}; expected a small number above 0, such as 1e-8")
