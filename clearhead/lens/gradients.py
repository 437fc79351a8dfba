"""Gradients: a model after a backward pass in; gradient norms per parameter and per layer out.

The total is the one that clipping uses (`torch.nn.utils.get_total_norm`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from ..errors import InputError

VANISHING, EXPLODING = 1e-3, 1e3  # thresholds of a layer's norm, relative to the median of all layers
LAYER = re.compile(r"(?:(encoder|decoder|tower)\.)?blocks\.(\d+)\.")


@dataclass(frozen=True)
class Gradients:
    total: float  # before clipping
    parameters: dict[str, float]
    layers: dict[str, float]  # "tower.embed", "tower.blocks.0", ..., "head", in the order of the model

    def mark(self, layer: str) -> str:
        """A layer's norm relative to the median: "vanishing", "exploding", "none" (zero) or "" (ordinary)."""
        norms = [norm for norm in self.layers.values() if norm > 0]
        norm = self.layers[layer]
        if norm == 0:
            return "none"
        typical = median(norms)
        if norm != norm or norm == float("inf") or norm > EXPLODING * typical:
            return "exploding"
        return "vanishing" if norm < VANISHING * typical else ""


def gradients(model: nn.Module) -> Gradients:
    """Read the gradients after a backward pass; parameters without one count as zero."""
    grads: Mapping[str, Tensor | None] = {
        name: p.grad for name, p in model.named_parameters() if p.requires_grad
    }
    computed = [grad for grad in grads.values() if grad is not None]
    if not computed:
        raise InputError("no parameter has a gradient; call backward() on a loss first")
    norms = {name: 0.0 if grad is None else float(grad.norm()) for name, grad in grads.items()}
    squares: dict[str, float] = {}
    for name, norm in norms.items():
        squares[part(name)] = squares.get(part(name), 0.0) + norm**2
    layers = {name: square**0.5 for name, square in squares.items()}
    return Gradients(float(get_total_norm(computed)), norms, layers)


def part(name: str) -> str:
    """The layer a parameter belongs to."""
    match = LAYER.match(name)
    if match:
        return name[: match.end() - 1]
    pieces = name.split(".")
    return pieces[0] if pieces[0] == "head" else ".".join(pieces[:2])
