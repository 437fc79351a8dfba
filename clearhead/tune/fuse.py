"""Fusing: a module with several linear layers of one input in; one product for all of them.

Nothing changes outside: where each layer stood, a `Part` answers for it. Whoever is asked first computes the
product for all, the others hand out what is left of it.

    q(x), k(x), v(x)   ->   product(x) = [ q | k | v ]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Product = Callable[[Tensor, Tensor | None], nn.Module]  # a weight and a bias in, a layer out


class Joint:
    """One product, handed out in parts. Each part is handed out once; asked again, it is computed again."""

    def __init__(self, product: nn.Module, widths: Sequence[int]) -> None:
        self.product, self.widths = product, list(widths)
        self._of: Tensor | None = None
        self._left: dict[int, Tensor] = {}

    def part(self, i: int, x: Tensor) -> Tensor:
        of, left = self._of, self._left
        if of is not x or i not in left:
            left = dict(enumerate(self.product(x).split(self.widths, dim=-1)))
        mine = left.pop(i)
        # Nothing is kept when all was handed out, so no activation outlives its step.
        self._of, self._left = (x, left) if left else (None, {})
        return mine


class Part(nn.Module):
    """Stands where a layer stood: its share of the product."""

    def __init__(self, joint: Joint, index: int) -> None:
        super().__init__()
        self.index, self._joint = index, joint
        if index == 0:
            self.product = joint.product  # the first part owns the product, so that torch sees it once

    def forward(self, x: Tensor) -> Tensor:
        return self._joint.part(self.index, x)


def fuse(module: nn.Module, names: Sequence[str], product: Product) -> None:
    """Make one product of the named layers of a module; those it does not have are left out."""
    there = [name for name in names if isinstance(getattr(module, name, None), nn.Linear)]
    if len(there) < 2:
        return
    layers = [getattr(module, name) for name in there]
    weight = torch.cat([layer.weight.detach() for layer in layers])
    joint = Joint(product(weight, _biases(layers)), [layer.out_features for layer in layers])
    for i, name in enumerate(there):
        setattr(module, name, Part(joint, i))


def _biases(layers: Sequence[nn.Linear]) -> Tensor | None:
    """Side by side, zeros where a layer has none; None where no layer has one."""
    if all(layer.bias is None for layer in layers):
        return None
    each = [
        layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers
    ]
    return torch.cat([bias.detach() for bias in each])
