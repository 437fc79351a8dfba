"""PEFT's LoRA, DoRA and rsLoRA: narrow matrices of our layers in, `lora_A` and `lora_B` of theirs out; back.

A layer that is one matrix there and several here has one `lora_A` for all of them, and the rows of `lora_B`
as those of the matrix. Several of ours with narrow matrices of their own are written as one pair of the sum
of their ranks, whose `lora_B` is zero outside its blocks.

Shape suffixes: I inputs, O outputs, R rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import LoadError, UnsupportedError, quoted
from ...nn import TransformerModel
from ...weights import StateDict, StoredMatrix
from ..files import AdapterFiles
from ..lora import Lora, LoraAdapter
from ..names import ModelNames
from ..tuning import AttachedTuning
from .checks import check_ranks
from .layout import (
    COMMON,
    LAYER_PREFIX,
    adapted_layers,
    adapter_at,
    is_inactive,
    layer_tensors,
    most_common,
    our_layers,
    outputs_of,
    pattern_values,
    short_names,
    unlike,
    whole,
)

LORA_CONFIG: dict[str, Any] = COMMON | {
    "alora_invocation_tokens": None, "alpha_pattern": {}, "arrow_config": None, "bias": "none",
    "corda_config": None, "ensure_weight_tying": False, "eva_config": None, "exclude_modules": None,
    "fan_in_fan_out": False, "init_lora_weights": True, "kasa_config": None, "layer_replication": None,
    "layers_pattern": None, "layers_to_transform": None, "loftq_config": {}, "lora_alpha": 8,
    "lora_bias": False, "lora_dropout": 0.0, "lora_ga_config": None, "megatron_config": None,
    "megatron_core": "megatron.core", "monteclora_config": None, "peft_type": "LORA",
    "qalora_group_size": 16, "r": 8, "rank_pattern": {}, "target_modules": None, "target_parameters": None,
    "trainable_token_indices": None, "use_bdlora": None, "use_dora": False, "use_qalora": False,
    "use_rslora": False, "velora_config": None,
}  # fmt: skip
# Keys of methods that compute something else; only these values are read.
PLAIN: dict[str, Sequence[Any]] = {
    "alora_invocation_tokens": (None,), "arrow_config": (None,), "layer_replication": (None,),
    "lora_bias": (False, None), "target_parameters": (None, []), "trainable_token_indices": (None,),
    "use_bdlora": (None, False), "use_qalora": (False, None), "kasa_config": (None,),
    "monteclora_config": (None,), "velora_config": (None,), "megatron_config": (None,),
}  # fmt: skip
# Starts that leave the weights of the base as they are.
PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")


def write_lora(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> AdapterFiles:
    value = attached.value
    assert isinstance(value, Lora)
    tensors: StateDict = {}
    ranks, alphas = dict[str, int](), dict[str, float]()
    for path, matrix, adapters in adapted_layers(model, attached, names):
        if path.rpartition(".")[2] in names.names_of_experts:
            raise UnsupportedError(f"PEFT takes {path} for a layer of the experts")
        joined = _join(model, matrix, adapters, value)
        ranks[path], alphas[path] = joined.rank, whole(joined.alpha)
        tensors |= {f"{LAYER_PREFIX}{path}.lora_{name}": x for name, x in joined.tensors.items()}
    tensors |= _biases(model, attached, names, list(ranks))
    rank, alpha = most_common(ranks), most_common(alphas)
    config = LORA_CONFIG | {
        "r": rank, "lora_alpha": alpha, "lora_dropout": value.dropout, "bias": value.bias,
        "use_dora": value.variant == "dora", "use_rslora": value.scaling == "sqrt-rank",
        "init_lora_weights": "gaussian" if value.start == "gaussian" else True,
        "rank_pattern": unlike(ranks, rank), "alpha_pattern": unlike(alphas, alpha),
        "target_modules": short_names(list(ranks), names.paths),
        # Layers that are stored transposed (GPT-2); PEFT says so in its config.
        "fan_in_fan_out": any(names.matrices[path].rule.transpose for path in ranks),
    }  # fmt: skip
    return AdapterFiles(config, tensors)


@dataclass(frozen=True)
class _Joined:
    rank: int
    alpha: float
    tensors: StateDict


def _join(
    model: TransformerModel, matrix: StoredMatrix, adapters: Mapping[str, LoraAdapter], value: Lora
) -> _Joined:
    """The narrow matrices of our layers as one pair for the layer of theirs."""
    first, shared = next(iter(adapters.values())), _is_shared(matrix, adapters)
    downs: list[Tensor] = []
    ups: dict[str, list[Tensor]] = {name: [] for name in matrix.parts}
    for owner in list(adapters)[: 1 if shared else None]:
        for down, start in _pairs(adapters[owner]):
            downs.append(down.detach())
            for name in matrix.parts:
                if name in adapters and (shared or name == owner):
                    up = adapters[name].start_up if start else adapters[name].up
                    assert up is not None
                    ups[name].append(_scaled(up.detach(), adapters[name], first, start=start))
                else:
                    ups[name].append(down.new_zeros(outputs_of(model, name), len(down)))
    down_RI = torch.cat(downs)
    tensors = {
        "A.weight": down_RI,
        "B.weight": matrix.join([torch.cat(ups[name], dim=1) for name in matrix.parts]),
    }
    if value.variant == "dora":
        tensors["magnitude_vector"] = matrix.join(
            [_magnitude(model, name, adapters.get(name)) for name in matrix.parts]
        )
    more = len(down_RI) / len(first.down)  # times the rank of the first
    alpha = first.alpha * (more if value.scaling == "rank" else math.sqrt(more))
    return _Joined(len(down_RI), alpha, tensors)


def _is_shared(matrix: StoredMatrix, adapters: Mapping[str, LoraAdapter]) -> bool:
    """Whether all of our layers have the same `down`, as the layer of theirs has."""
    own = list(adapters.values())
    return len(own) == len(matrix.parts) and all(adapter.down is own[0].down for adapter in own)


def _pairs(adapter: LoraAdapter) -> list[tuple[Tensor, bool]]:
    """Its `down`, and what that was at the start, where it is subtracted."""
    return [
        (adapter.down, False),
        *([] if adapter.start_down is None else [(adapter.start_down, True)]),
    ]


def _scaled(up: Tensor, adapter: LoraAdapter, first: LoraAdapter, *, start: bool) -> Tensor:
    """With the scale of the first adapter, which is that of the file; a start is subtracted."""
    factor = adapter.scale / first.scale * (-1 if start else 1)
    return up if factor == 1.0 else up * factor


def _magnitude(model: TransformerModel, name: str, adapter: LoraAdapter | None) -> Tensor:
    """Of a layer without an adapter: the lengths of its rows, which leave it as it is."""
    if adapter is not None and adapter.magnitude is not None:
        return adapter.magnitude.detach()
    lengths: Tensor = model.get_parameter(f"{name}.weight").detach().float().norm(dim=1)
    return lengths


def _biases(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, paths: Sequence[str]
) -> StateDict:
    """The biases that learn; those of layers with an adapter are in their `base_layer`."""
    value = attached.value
    assert isinstance(value, Lora)
    if value.bias == "none":
        return {}
    learn = [name for name in attached.trained if name.endswith("bias") and name in names.parameters]
    found: StateDict = {}
    parameters = dict(model.named_parameters())
    twice = {name: parameters[ours] for ours in learn for name in names.tied.get(ours, ())}
    for name, x in {**names.export(parameters, learn), **twice}.items():
        inside = name.removesuffix(".bias") in paths
        stored = f"{name.removesuffix('bias')}base_layer.bias" if inside else name
        found[LAYER_PREFIX + stored] = x.detach()
    return found


def lora_tuning(files: AdapterFiles, names: ModelNames) -> Lora:
    config = files.config
    for key, allowed in PLAIN.items():
        if key in config and config[key] not in allowed and not is_inactive(config[key]):
            raise LoadError(f"adapter_config.json: {key} is {quoted(config[key])}, which is not supported")
    start = config.get("init_lora_weights", True)
    if start not in PLAIN_STARTS:
        raise LoadError(
            f"adapter_config.json: init_lora_weights is {quoted(start)}, which changed the weights of the "
            f"base; convert the adapter with PEFT's path_initial_model_for_weight_conversion"
        )
    if any(".lora_embedding_" in name for name in files.tensors):
        raise LoadError("the adapter has LoRA on an embedding, which is not supported: only linear layers")
    ranks, alphas = dict[str, int](), dict[str, float]()
    for path, x in layer_tensors(files, names, "lora_A.weight").items():
        check_ranks(files, path, len(x))
        for name in names.matrices[path].parts:
            ranks[name] = len(x)
            alphas[name] = float(
                pattern_values(config, "alpha_pattern", path, config.get("lora_alpha", 8))[0]
            )
    if not ranks:
        raise LoadError("the adapter has no lora_A.weight of any layer; its file is empty or damaged")
    rank, alpha = most_common(ranks), most_common(alphas)
    return Lora(
        rank=rank,
        alpha=alpha,
        targets=tuple(short_names(list(ranks), our_layers(names))),
        scaling="sqrt-rank" if config.get("use_rslora") else "rank",
        variant="dora" if config.get("use_dora") else "lora",
        start="gaussian" if start == "gaussian" else "zero",
        dropout=float(config.get("lora_dropout") or 0.0),
        rank_pattern=tuple(unlike(ranks, rank).items()),
        alpha_pattern=tuple(unlike(alphas, alpha).items()),
        bias=config.get("bias") or "none",
    )


def lora_state(
    files: AdapterFiles, model: TransformerModel, attached: AttachedTuning, names: ModelNames
) -> StateDict:
    found: StateDict = {}
    for path, matrix in names.matrices.items():
        adapters = {name: adapter_at(model, name) for name in matrix.parts if name in attached.layers}
        if adapters:
            found |= _split(path, matrix, adapters, files)  # type: ignore[arg-type]
    return found


def _split(
    path: str, matrix: StoredMatrix, adapters: Mapping[str, LoraAdapter], files: AdapterFiles
) -> StateDict:
    """The inverse of `_join`, for adapters of these ranks."""
    ends = {"A": "lora_A.weight", "B": "lora_B.weight", "magnitude": "lora_magnitude_vector"}
    found = {key: files.tensors.get(f"{LAYER_PREFIX}{path}.{end}") for key, end in ends.items()}
    down_RI, up_OR, lengths_O = found["A"], found["B"], found["magnitude"]
    if down_RI is None or up_OR is None:
        raise LoadError(
            f"the adapter lacks lora_A or lora_B of {path}; it is of another base, or its file is damaged"
        )
    ups = dict(zip(matrix.parts, matrix.split(up_OR), strict=True))
    first, shared = next(iter(adapters.values())), _is_shared(matrix, adapters)
    state: StateDict = {}
    row = 0
    for name, adapter in adapters.items():
        row = 0 if shared else row
        for down, start in _pairs(adapter):
            rows, row = slice(row, row + len(down)), row + len(down)
            kind = "start_" if start else ""
            state[f"{name}.lora.{kind}down"] = down_RI[rows]
            # The inverse of `_scaled`: both divide and multiply by the same.
            state[f"{name}.lora.{kind}up"] = _scaled(ups[name][:, rows], first, adapter, start=start)
    if lengths_O is not None:
        lengths = dict(zip(matrix.parts, matrix.split(lengths_O), strict=True))
        state |= {f"{name}.lora.magnitude": lengths[name] for name in adapters}
    return state
