"""Targets: patterns of names in; the linear layers of a model that they name out.

A pattern is a glob with braces over our addresses (`*.attn.{q,v}`, `tower.blocks.{0,1}`) or over the names
of the checkpoint's modules (`q_proj`, `self_attn.q_proj`, `encoder.layer.3.*`); the name of a module stands
for all linear layers in it. `all-linear` stands for those of the blocks, without experts, routers and the
gates of shared experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from ..errors import InputError, nearest, quoted
from ..nn import EmbeddingTable, LinearLayer, MixtureOfExperts, TokenLogits, TransformerModel
from ..patterns import NamePattern
from .names import ModelNames

ALL_LINEAR = "all-linear"

Targets = str | tuple[str, ...]


def linear_layers(model: TransformerModel) -> dict[str, LinearLayer | TokenLogits]:
    """Every layer with a matrix of its own, by its address; a shared one by the first of its addresses."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, LinearLayer) or (isinstance(module, TokenLogits) and module.weight is not None)
    }


def block_layers(model: TransformerModel) -> list[str]:
    """The addresses of the linear layers of the blocks, without those of experts and what weights them."""
    apart = {layer for module in model.modules() for layer in _expert_layers(module)}
    return [name for name, layer in linear_layers(model).items() if ".blocks." in name and layer not in apart]


def _expert_layers(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, MixtureOfExperts):
        for part in (*module.experts, module.router, module.shared_gate):
            yield from () if part is None else part.modules()


def find_targets(model: TransformerModel, targets: Targets, names: ModelNames, what: str) -> list[str]:
    """The addresses of the layers that these patterns name; a pattern that names none is an error."""
    patterns = (targets,) if isinstance(targets, str) else targets
    if not patterns or not all(patterns):
        raise InputError(f"{what} has no targets; name some, such as '*.attn.{{q,v}}' or '{ALL_LINEAR}'")
    known = linear_layers(model)
    found = {name for pattern in patterns for name in _layers_named(model, pattern, known, names, what)}
    return [name for name in known if name in found]


def _layers_named(
    model: TransformerModel, pattern: str, known: Mapping[str, nn.Module], names: ModelNames, what: str
) -> list[str]:
    if pattern == ALL_LINEAR:
        return block_layers(model)
    wanted = NamePattern(pattern, anywhere=True)
    addresses, theirs = addresses_of(model, known), names.modules
    found = {addresses[name] for name in wanted.among(addresses)}
    found |= {name for each in wanted.among(theirs) for name in theirs[each] if name in known}
    if found:
        return list(found)
    other = {name: name for name, module in model.named_modules() if name and not list(module.children())}
    other |= {name.rpartition(".")[0]: ours[0].rpartition(".")[0] for name, ours in names.tensors.items()}
    for name in wanted.among(other):
        module = model.get_submodule(other[name])
        if isinstance(module, EmbeddingTable):
            raise InputError(
                f"target {quoted(pattern)} names {name}, a table, and {what} is for linear layers; to train "
                f"the whole table name it in modules_to_save"
            )
        kind = type(module).__name__.lstrip("_")
        raise InputError(f"target {quoted(pattern)} names {name}, a {kind}; {what} is for linear layers")
    hint = nearest_name(pattern, [*addresses, *theirs])
    raise InputError(f"target {quoted(pattern)} matches no linear layer; {hint}")


def addresses_of(model: TransformerModel, known: Mapping[str, nn.Module]) -> dict[str, str]:
    """Every address of every linear layer, with the one it is known by."""
    first = {module: name for name, module in known.items()}
    return {
        name: first[module] for name, module in model.named_modules(remove_duplicate=False) if module in first
    }


def nearest_name(pattern: str, names: Sequence[str]) -> str:
    """The nearest name; of a short pattern, or one for all layers, the nearest ends of names."""
    end = pattern.lstrip("*.")
    ends = {".".join(name.split(".")[-(end.count(".") + 1) :]) for name in names}
    return nearest(end, ends)
