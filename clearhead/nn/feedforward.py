"""Feed-forward layers: each vector of the stream by itself, through a wide hidden layer and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ..spec import Count, Positive, Rate, Spec
from .context import Context, context_of
from .cost import HiddenShape, PartCost, linear_cost
from .counting import count_cost
from .layers import Dropout, LinearLayer

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "quick_gelu", "tanh"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    "tanh": F.tanh,
}


# What autograd keeps of an activation: how many tensors besides its output, and whether its output.
ACTIVATION_SAVES: dict[str, tuple[int, bool]] = {
    "relu": (0, True),
    "gelu": (1, False),
    "gelu_tanh": (1, False),
    "silu": (1, False),
    "quick_gelu": (2, False),  # its input, and the sigmoid
    "tanh": (0, True),
}


class FeedForward(Spec):
    """The spec of a layer that works on each position by itself."""

    def build(self, width: int) -> nn.Module:
        raise NotImplementedError

    @property
    def last_product_inputs(self) -> int:
        """How many inputs its last product has; 0 if something after it is saved for the backward pass."""
        return int(getattr(self, "hidden", 0))

    def cost(self, shape: HiddenShape) -> PartCost:
        size = (shape.batch, shape.length, shape.width)
        run = lambda module, x: module(x, context_of(x))  # noqa: E731
        return count_cost(self, lambda: self.build(shape.width), run, [size], shape)


@dataclass(frozen=True, kw_only=True)
class MLP(FeedForward):
    """down(act(up(x))) (Vaswani 2017)."""

    hidden: Count
    act: Activation = "gelu"
    bias: bool = True
    dropout: Rate = 0.0

    def build(self, width: int) -> nn.Module:
        return _FeedForward(self, width, gate=None)

    def cost(self, shape: HiddenShape) -> PartCost:
        besides, output = ACTIVATION_SAVES[self.act]
        # `down` keeps what it is given: the activation's output or, after a dropout, another tensor.
        dropped = shape.training and self.dropout > 0
        return _cost(self, shape, up=1, tensors=besides + (output or not dropped) + dropped)


@dataclass(frozen=True, kw_only=True)
class Gated(FeedForward):
    """down(act(gate(x)) * up(x)): SwiGLU with silu, GEGLU with gelu (Shazeer 2020).

    `limit` clips gate and up to it and multiplies with up + 1 (gpt-oss).
    """

    hidden: Count
    act: Activation = "silu"
    bias: bool = False
    dropout: Rate = 0.0
    limit: Positive | None = None

    def build(self, width: int) -> nn.Module:
        return _FeedForward(self, width, gate=LinearLayer(width, self.hidden, bias=self.bias))

    def cost(self, shape: HiddenShape) -> PartCost:
        """Besides what the activation keeps: its output, `up`, and what `down` is given."""
        clipped = 2 if self.limit else 0  # what was clipped is kept as well
        return _cost(self, shape, up=2, tensors=ACTIVATION_SAVES[self.act][0] + 3 + clipped)


def _cost(spec: MLP | Gated, shape: HiddenShape, *, up: int, tensors: int) -> PartCost:
    numbers = shape.vectors * spec.hidden
    kept = shape.number * numbers * tensors + shape.dropout_bytes(numbers, spec.dropout)
    return (
        linear_cost(shape.vectors, shape.width, spec.hidden, bias=spec.bias).times(up)
        + linear_cost(shape.vectors, spec.hidden, shape.width, bias=spec.bias)
        + PartCost(saved=kept)
    )


class _FeedForward(nn.Module):
    SITES = ("hidden", "out")
    FUSABLE = ("up", "gate")  # as in attention: layers of one input

    def __init__(self, spec: MLP | Gated, width: int, gate: nn.Linear | None) -> None:
        super().__init__()
        self.up = LinearLayer(width, spec.hidden, bias=spec.bias)
        self.gate = gate
        self.down = LinearLayer(spec.hidden, width, bias=spec.bias)
        self.dropout = Dropout(spec.dropout)
        self.act = ACTIVATIONS[spec.act]
        self.limit = spec.limit if isinstance(spec, Gated) else None

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        tap = ctx.tap
        up = self.up(x_BTD)
        if self.gate is None:
            hidden = self.act(up)
        else:
            gate = self.gate(x_BTD)
            if self.limit is not None:
                gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit) + 1
            hidden = self.act(gate) * up
        hidden = tap("hidden", hidden)
        return tap("out", self.down(self.dropout(hidden) if self.training else hidden))
