"""Feed-forward layers: each vector of the stream alone, through a wide hidden layer and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ..spec import Count, Rate, Spec
from .context import Context
from .layers import Linear

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "quick_gelu", "tanh"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    "tanh": F.tanh,
}


class FeedForward(Spec):
    """What is done to each position alone."""

    def build(self, width: int) -> nn.Module:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MLP(FeedForward):
    """down(act(up(x))) (Vaswani 2017)."""

    hidden: Count
    act: Activation = "gelu"
    bias: bool = True
    dropout: Rate = 0.0

    def build(self, width: int) -> nn.Module:
        return _FeedForward(self, width, gate=None)


@dataclass(frozen=True, kw_only=True)
class Gated(FeedForward):
    """down(act(gate(x)) * up(x)): SwiGLU with silu, GEGLU with gelu (Shazeer 2020)."""

    hidden: Count
    act: Activation = "silu"
    bias: bool = False
    dropout: Rate = 0.0

    def build(self, width: int) -> nn.Module:
        return _FeedForward(self, width, gate=Linear(width, self.hidden, bias=self.bias))


class _FeedForward(nn.Module):
    SITES = ("hidden", "out")
    TOGETHER = ("up", "gate")  # as in attention: layers of one input

    def __init__(self, spec: MLP | Gated, width: int, gate: nn.Linear | None) -> None:
        super().__init__()
        self.up = Linear(width, spec.hidden, bias=spec.bias)
        self.gate = gate
        self.down = Linear(spec.hidden, width, bias=spec.bias)
        self.dropout = nn.Dropout(spec.dropout)
        self.act = ACTIVATIONS[spec.act]

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        tap = ctx.tap
        up = self.up(x_BTD)
        hidden = self.act(up) if self.gate is None else self.act(self.gate(x_BTD)) * up
        hidden = tap("hidden", hidden)
        return tap("out", self.down(self.dropout(hidden) if self.training else hidden))
