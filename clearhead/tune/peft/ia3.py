"""PEFT's IA3: the factors of our layers in, one `ia3_l` for each layer of theirs out; and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ...errors import LoadError, UnsupportedError
from ...nn import TransformerModel
from ...weights import StateDict
from ..files import AdapterFiles
from ..ia3 import IA3, ScaleAdapter
from ..names import ModelNames
from ..tuning import AttachedTuning
from .layout import (
    COMMON,
    LAYER_PREFIX,
    adapted_layers,
    adapter_at,
    layer_tensors,
    our_layers,
    outputs_of,
    short_names,
)

IA3_CONFIG: dict[str, Any] = COMMON | {
    "exclude_modules": None, "fan_in_fan_out": False, "feedforward_modules": [], "init_ia3_weights": True,
    "peft_type": "IA3", "target_modules": None,
}  # fmt: skip


def write_ia3(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> AdapterFiles:
    tensors: StateDict = {}
    hit, inputs = list[str](), list[str]()
    for path, matrix, adapters in adapted_layers(model, attached, names):
        sides = {adapter.side for adapter in adapters.values()}
        if len(sides) > 1:
            raise UnsupportedError(f"PEFT scales either the inputs or the outputs of {path}, here are both")
        hit.append(path)
        if sides == {"in"}:
            scale = next(iter(adapters.values())).scale
            if len(adapters) < len(matrix.parts) or any(x.scale is not scale for x in adapters.values()):
                raise UnsupportedError(f"PEFT scales the inputs of {path} for all of it")
            inputs.append(path)
            tensors[f"{LAYER_PREFIX}{path}.ia3_l"] = scale.detach()[None]
        else:
            if apart := _biases_elsewhere(names, adapters):
                raise UnsupportedError(f"PEFT scales the output of {path} without the bias of {apart[0]}")
            parts = [_factors(model, name, adapters.get(name)) for name in matrix.parts]
            tensors[f"{LAYER_PREFIX}{path}.ia3_l"] = matrix.join(parts)[:, None]
    inside = short_names(inputs, names.paths) if inputs else []
    config = IA3_CONFIG | {
        # PEFT wants every word of feedforward_modules among these, too.
        "target_modules": sorted({*short_names(hit, names.paths), *inside}),
        "feedforward_modules": inside,
        "fan_in_fan_out": any(names.matrices[path].rule.transpose for path in hit),
    }
    return AdapterFiles(config, tensors)


def _biases_elsewhere(names: ModelNames, layers: Iterable[str]) -> list[str]:
    return [name for name in layers if names.has_bias_elsewhere(name)]


def _factors(model: TransformerModel, name: str, adapter: ScaleAdapter | None) -> Tensor:
    return torch.ones(outputs_of(model, name)) if adapter is None else adapter.scale.detach()


def ia3_tuning(files: AdapterFiles, names: ModelNames) -> IA3:
    sides: dict[bool, list[str]] = {True: [], False: []}
    for path, factors in layer_tensors(files, names, "ia3_l").items():
        if factors.ndim != 2 or 1 not in factors.shape:
            raise LoadError(
                f"ia3_l of {path} has the shape {tuple(factors.shape)}; expected (1, inputs) or (outputs, 1)"
            )
        feedforward, parts = len(factors) == 1, names.matrices[path].parts
        if not feedforward and (apart := _biases_elsewhere(names, parts)):
            raise LoadError(
                f"the adapter scales the output of {path}, to which the model adds a bias later; here the "
                f"bias of {apart[0]} is scaled, too, so this IA3 cannot be read"
            )
        sides[feedforward] += parts
    if not sides[True] and not sides[False]:
        raise LoadError("the adapter has no ia3_l of any layer; its file is empty or damaged")
    outputs, inputs = (tuple(short_names(sides[side], our_layers(names))) for side in (False, True))
    return IA3(targets=outputs, feedforward=inputs)


def ia3_state(
    files: AdapterFiles, model: TransformerModel, attached: AttachedTuning, names: ModelNames
) -> StateDict:
    found: StateDict = {}
    for path, matrix in names.matrices.items():
        adapters = {name: adapter_at(model, name) for name in matrix.parts if name in attached.layers}
        if not adapters:
            continue
        factors = files.tensors.get(f"{LAYER_PREFIX}{path}.ia3_l")
        if factors is None:
            raise LoadError(
                f"the adapter lacks ia3_l of {path}; it is of another base, or its file is damaged"
            )
        if all(isinstance(adapter, ScaleAdapter) and adapter.side == "in" for adapter in adapters.values()):
            found |= {f"{name}.ia3.scale": factors.flatten() for name in adapters}
        else:
            parts = dict(zip(matrix.parts, matrix.split(factors.flatten()), strict=True))
            found |= {f"{name}.ia3.scale": parts[name] for name in adapters}
    return found
