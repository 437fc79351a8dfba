"""Energy of a change: two models and their parts in; how much the weights of each part changed, out.

The energy of a part is |dW| / |W|: the norm of the difference of its weights, adapters merged, divided by the
norm of the weights before, in float64. Biases count as one more column of a matrix; norms, whose weights are
large, count where they changed. What acts beside the weights (bottlenecks, virtual tokens) has no energy.

Shape suffixes: O outputs, I inputs, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from operator import attrgetter

import torch
from torch import Tensor, nn

from ..nn import LinearLayer, MultiHead, TokenLogits
from .head_slices import HeadSlices, head_slices
from .linear import WithAdapter, base_matrix
from .parts import Modules, PairedModels, SubLayerPair

Energies = dict[str, float | None]


class Squares:
    """Sums of squares of a change and of what is changed; without an end if a shape differs."""

    def __init__(self, change: float = 0.0, own: float = 0.0) -> None:
        self.change, self.own = change, own

    def __add__(self, other: Squares) -> Squares:
        return Squares(self.change + other.change, self.own + other.own)

    @property
    def energy(self) -> float | None:
        return math.sqrt(self.change / self.own) if self.own > 0 and math.isfinite(self.change) else None


@torch.no_grad()
def part_energies(paired: PairedModels) -> Energies:
    """The energy of every part by its address; None: nothing there has weights before and after."""
    addresses = {part.address for part in paired.parts}
    found: Energies = {}
    by_layer: dict[str, Squares] = {}
    for (tower, i, step), pair in paired.pairs.items():
        layer, address = f"{tower}.blocks.{i}", f"{tower}.blocks.{i}.{step}"
        if layer not in addresses:
            continue
        own, *beside = (_squares(*modules) for modules in pair.modules)
        squares = _sum([own, *(each for each in beside if each.change > 0)])
        by_layer[layer] = by_layer.get(layer, Squares()) + squares
        if step == "attn":
            by_layer[layer] += _squares(pair.before.positions, pair.after.positions)
        if address in addresses:
            found[address] = squares.energy
        if pair.heads:
            energies = _head_energies(pair)
            found |= {f"{address}.heads.{h}": energy for h, energy in enumerate(energies)}
    found |= {layer: squares.energy for layer, squares in by_layer.items()}
    for part in paired.parts:
        if part.layer is None:
            found[part.address] = _squares(*_modules_at(paired, part.address)).energy
    # A bottleneck or a prefix: what changed is beside the weights, which are what they were.
    return {address: found[address] or None for address in (part.address for part in paired.parts)}


def _modules_at(paired: PairedModels, address: str) -> Modules:
    return attrgetter(address)(paired.before), attrgetter(address)(paired.after)


def _sum(squares: Iterable[Squares]) -> Squares:
    return sum(squares, Squares())


def _squares(before: nn.Module | None, after: nn.Module | None) -> Squares:
    """Of all weights of a module; of one that only one of the two has, nothing."""
    if before is None or after is None:
        return Squares()
    one, two = (dict(merged_parameters(module)) for module in (before, after))
    total = Squares()
    for name in dict.fromkeys([*one, *two]):
        if name not in one or name not in two or one[name].shape != two[name].shape:
            return Squares(math.inf, 1.0)  # of another kind: there is no difference to measure
        x = one[name]
        total += Squares(float((two[name] - x).square().sum()), float(x.square().sum()))
    return total


def merged_parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights that a module computes with, adapters merged, in float64."""
    adapters = {id(m.adapter) for m in module.modules() if isinstance(m, WithAdapter)}
    inside = {id(m) for a in module.modules() if id(a) in adapters for m in a.modules()}
    for name, each in module.named_modules():
        if id(each) in inside:
            continue
        if isinstance(each, LinearLayer | TokenLogits) and each.weight is not None:
            weight_OI, bias_O = merged_weights(each)
            yield f"{name}.weight", weight_OI
            if bias_O is not None:
                yield f"{name}.bias", bias_O
            continue
        for own, parameter in each._parameters.items():
            if parameter is not None:
                yield f"{name}.{own}", parameter.double()


def merged_weights(layer: LinearLayer | TokenLogits) -> tuple[Tensor, Tensor | None]:
    """The matrix and the bias of a linear layer with its adapter, in float64."""
    weight_OI = _matrix(layer).double()
    bias_O = None if layer.bias is None else layer.bias.double()
    if isinstance(layer, WithAdapter):
        return layer.adapter.merge(weight_OI, bias_O)
    return weight_OI, bias_O


def _matrix(layer: LinearLayer | TokenLogits) -> Tensor:
    """What the layer multiplies by; of a prepared model the packed weights, which may be quantized."""
    return base_matrix(layer) if layer.product is None else layer.product.dequantized()


def _head_energies(pair: SubLayerPair) -> list[float | None]:
    one, two = getattr(pair.before, pair.step), getattr(pair.after, pair.step)
    assert isinstance(one, MultiHead) and isinstance(two, MultiHead)
    change_H, own_H = torch.zeros(pair.heads).double(), torch.zeros(pair.heads).double()
    for name, cut in head_slices(two).items():
        before_OI, after_OI = (_with_bias(m.get_submodule(name), cut) for m in (one, two))
        change_H += _by_head(after_OI - before_OI, cut, pair.heads)
        own_H += _by_head(before_OI, cut, pair.heads)
    return [Squares(float(c), float(o)).energy for c, o in zip(change_H, own_H, strict=True)]


def _with_bias(layer: nn.Module, cut: HeadSlices) -> Tensor:
    """The matrix; where heads are rows, with the bias as one more column."""
    assert isinstance(layer, LinearLayer)
    weight_OI, bias_O = merged_weights(layer)
    return (
        weight_OI if bias_O is None or cut.axis == "columns" else torch.cat([weight_OI, bias_O[:, None]], 1)
    )


def _by_head(x_OI: Tensor, cut: HeadSlices, heads: int) -> Tensor:
    """(H,): the sum of squares of the rows or columns of each head; heads of a group have the same rows."""
    sums = x_OI.square().sum(1 if cut.axis == "rows" else 0).cpu()
    return sums.reshape(cut.groups, -1).sum(1).repeat_interleave(heads // cut.groups)
