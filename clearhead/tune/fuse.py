"""Fused linear layers: a module with several linear layers over the same input in; one product for all out.

Callers see no difference: each layer is replaced by a `FusedSlice`. The first one called with an input
computes the product for all, and the others return their slice of the result.

    q(x), k(x), v(x)   ->   product(x) = [ q | k | v ]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Product = Callable[[Tensor, Tensor | None], nn.Module]  # a weight and a bias in, a layer out


class FusedLinear:
    """One product for several layers. Each slice is returned once; a second request computes it again."""

    def __init__(self, product: nn.Module, widths: Sequence[int]) -> None:
        self.product, self.widths = product, list(widths)
        self._input: Tensor | None = None
        self._slices: dict[int, Tensor] = {}

    def output(self, i: int, x: Tensor) -> Tensor:
        x_before, slices = self._input, self._slices
        if x_before is not x or i not in slices:
            slices = dict(enumerate(self.product(x).split(self.widths, dim=-1)))
        output = slices.pop(i)
        # When the last slice is returned nothing is kept, so that no activation outlives its step.
        self._input, self._slices = (x, slices) if slices else (None, {})
        return output


class FusedSlice(nn.Module):
    """Replaces a layer: its slice of the fused product."""

    def __init__(self, fused: FusedLinear, index: int) -> None:
        super().__init__()
        self.index, self._fused = index, fused
        if index == 0:
            self.product = fused.product  # registered once, with the first slice

    def forward(self, x: Tensor) -> Tensor:
        return self._fused.output(self.index, x)


def fuse(module: nn.Module, names: Sequence[str], product: Product) -> None:
    """Fuse the named layers of a module; names it does not have are ignored."""
    there = [name for name in names if isinstance(getattr(module, name, None), nn.Linear)]
    if len(there) < 2:
        return
    layers = [getattr(module, name) for name in there]
    weight = torch.cat([layer.weight.detach() for layer in layers])
    fused = FusedLinear(product(weight, _biases(layers)), [layer.out_features for layer in layers])
    for i, name in enumerate(there):
        setattr(module, name, FusedSlice(fused, i))


def _biases(layers: Sequence[nn.Linear]) -> Tensor | None:
    """All biases concatenated, zeros for a layer without one; None if no layer has a bias."""
    if all(layer.bias is None for layer in layers):
        return None
    each = [
        layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers
    ]
    return torch.cat([bias.detach() for bias in each])
