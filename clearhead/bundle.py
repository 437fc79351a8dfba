"""A bundle: a model with everything that belongs to it. A spec in; a model that can be called out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .nn.model import Model, PairModel, SingleModel


@dataclass
class Bundle:
    """What `build` gives: the spec, the model, and the config it came from."""

    spec: Model
    model: SingleModel | PairModel
    config: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Bundle({type(self.spec).__name__}, {self.spec.count():,} parameters)"


def build(spec: Model, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Bundle:
    """A fresh bundle: the same seed gives the same weights, bit for bit."""
    return Bundle(spec, spec.build(seed=seed, dtype=dtype, device=device))
