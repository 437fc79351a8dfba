"""A second tree of modules over the same weights: a model in; a model out that may be given more leaves.

Every parameter of the second tree is a new one without a gradient, over the memory of the first: the first
model does not change, whatever is added to the second, and no weight is copied. Layers that are shared stay
shared. Products that were packed for the first model are used by the second as well.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..engine import share_preparation
from ..nn import TransformerModel

ModelT = TypeVar("ModelT", bound=TransformerModel)


def second_tree(model: ModelT) -> ModelT:
    modules: dict[nn.Module, nn.Module] = {}
    parameters: dict[nn.Parameter, nn.Parameter] = {}

    def copied(module: nn.Module) -> nn.Module:
        if module not in modules:
            modules[module] = clone = copy.copy(module)
            clone._parameters = {
                name: None if p is None else same(p) for name, p in module._parameters.items()
            }
            clone._modules = {
                name: None if child is None else copied(child) for name, child in module._modules.items()
            }
            clone._buffers = dict(module._buffers)
        return modules[module]

    def same(parameter: nn.Parameter) -> nn.Parameter:
        if parameter not in parameters:
            # Detached, not `.data`: a write to one of the two counts for both.
            parameters[parameter] = nn.Parameter(parameter.detach(), requires_grad=False)
        return parameters[parameter]

    clone: ModelT = copied(model)  # type: ignore[assignment]
    share_preparation(model, clone, parameters)
    return clone


def take_over(module: nn.Module, other: nn.Module) -> None:
    """Make a new module of a derived class the other one, with its parameters, parts and attributes."""
    nn.Module.__init__(module)
    module.__dict__.update({key: x for key, x in vars(other).items() if not key.startswith("_")})
    module._parameters, module._modules = dict(other._parameters), dict(other._modules)
    module._buffers = dict(other._buffers)
    module._non_persistent_buffers_set = set(other._non_persistent_buffers_set)


def replace_modules(model: nn.Module, changes: Mapping[nn.Module, nn.Module]) -> None:
    """Put the new modules wherever the tree has the old ones: a shared layer is in several places."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and child in changes:
                parent._modules[name] = changes[child]


def own_parameters(model: nn.Module, names: Iterable[str]) -> None:
    """Give the model copies of these parameters, which learn; a shared one stays shared."""
    parameters = dict(model.named_parameters())
    replace_parameters(
        model,
        {name: parameters[name].detach().clone(memory_format=torch.contiguous_format) for name in names},
    )


def replace_parameters(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give the model other parameters of these values, which learn; a shared one stays shared."""
    parameters = dict(model.named_parameters())
    new = {parameters[name]: nn.Parameter(x) for name, x in values.items()}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter in new:
                module._parameters[name] = new[parameter]
