"""PEFT's folders: adapter_config.json and the tensors beside it in, a tuning and its tensors out; and back.

Names of tensors begin with `base_model.model.` and go on with the names of transformers' class. Where that
class has one layer for several of ours (q, k and v of GPT-2), so has the file: one narrow matrix `lora_A` for
all of them, and the rows of `lora_B` as those of the layer. Several of ours with narrow matrices of their own
are written as one of the sum of their ranks, whose `lora_B` is zero outside its blocks.

The formats are those of PEFT 0.21.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import LoadError, UnsupportedError, quoted
from ..nn import TransformerModel
from ..weights import StateDict, StoredMatrix
from .files import AdapterFiles
from .ia3 import IA3, ScaleAdapter
from .linear import WithAdapter
from .lora import Lora, LoraAdapter
from .names import ModelNames
from .tuning import AttachedTuning, Tuning

V = TypeVar("V")

PEFT_VERSION = "0.21.2"  # whose defaults are written
PREFIX = "base_model.model."
ADAPTER_END = r"\.(lora_\w+|ia3_l)(\.\w+)?$"  # of the names of an adapter's tensors, after that of the layer
# Modules that PEFT trains besides, by the kind of the model.
SAVED_ANYWAY = {
    "SEQ_CLS": ["classifier", "score"],
    "TOKEN_CLS": ["classifier", "score"],
    "QUESTION_ANS": ["qa_outputs"],
}
COMMON: dict[str, Any] = {
    "auto_mapping": None, "base_model_name_or_path": None, "inference_mode": True, "modules_to_save": None,
    "peft_version": PEFT_VERSION, "revision": None, "task_type": None,
}  # fmt: skip
LORA: dict[str, Any] = COMMON | {
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
IA3_CONFIG: dict[str, Any] = COMMON | {
    "exclude_modules": None, "fan_in_fan_out": False, "feedforward_modules": [], "init_ia3_weights": True,
    "peft_type": "IA3", "target_modules": None,
}  # fmt: skip
# Keys of methods that compute something else; only these values are read.
PLAIN_LORA: dict[str, Sequence[Any]] = {
    "alora_invocation_tokens": (None,), "arrow_config": (None,), "layer_replication": (None,),
    "lora_bias": (False, None), "target_parameters": (None, []), "trainable_token_indices": (None,),
    "use_bdlora": (None, False), "use_qalora": (False, None), "kasa_config": (None,),
    "monteclora_config": (None,), "velora_config": (None,), "megatron_config": (None,),
}  # fmt: skip


def write_peft(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> AdapterFiles:
    """Raises `UnsupportedError`, with the reason, for what PEFT has no format for."""
    value = attached.value
    if isinstance(value, Lora):
        files = _write_lora(model, value, attached, names)
    elif isinstance(value, IA3):
        files = _write_ia3(model, attached, names)
    else:
        raise UnsupportedError(f"PEFT has no format for {type(value).__name__}")
    saved, modules = _saved_modules(model, attached, names, task_type)
    config = files.config | {"task_type": task_type, "modules_to_save": modules or None}
    return AdapterFiles(config, {**files.tensors, **saved})


def _write_lora(
    model: TransformerModel, value: Lora, attached: AttachedTuning, names: ModelNames
) -> AdapterFiles:
    tensors: StateDict = {}
    settings: dict[str, tuple[int, float]] = {}
    for path, matrix, adapters in _adapted(model, attached, names, LoraAdapter):
        joined = _join_lora(model, matrix, adapters, value)
        settings[path] = joined.rank, joined.alpha
        tensors |= {f"{PREFIX}{path}.lora_{name}": x for name, x in joined.tensors.items()}
    rank, alpha = _most_common(settings)
    learned_biases = [name for name in attached.trained if name.endswith("bias")]
    if value.bias != "none":
        hit = {f"{name}.bias" for name in attached.layers}
        for name, x in names.export(dict(model.named_parameters()), learned_biases).items():
            inside = name.removesuffix(".bias") in settings
            if value.bias == "all" or (hit and inside):
                name = f"{name.removesuffix('bias')}base_layer.bias" if inside else name
                tensors[PREFIX + name] = x.detach()
    config = LORA | {
        "r": rank, "lora_alpha": _whole(alpha), "lora_dropout": value.dropout, "bias": value.bias,
        "use_dora": value.variant == "dora", "use_rslora": value.scaling == "sqrt-rank",
        "init_lora_weights": "gaussian" if value.start == "gaussian" else True,
        "rank_pattern": _patterns({p: r for p, (r, _) in settings.items()}, rank),
        "alpha_pattern": _patterns({p: _whole(a) for p, (_, a) in settings.items()}, _whole(alpha)),
        "target_modules": _short_names(list(settings), list(names.matrices)),
        # GPT-2's layers are stored transposed; PEFT says so in its config.
        "fan_in_fan_out": any(names.matrices[path].rule.transpose for path in settings),
    }  # fmt: skip
    return AdapterFiles(config, tensors)


@dataclass(frozen=True)
class _JoinedLora:
    rank: int
    alpha: float
    tensors: StateDict


def _join_lora(
    model: TransformerModel, matrix: StoredMatrix, adapters: Mapping[str, LoraAdapter], value: Lora
) -> _JoinedLora:
    """The narrow matrices of several layers as those of one."""
    own = list(adapters.values())
    shared = len(own) == len(matrix.parts) and all(a.down is own[0].down for a in own)
    downs, ups = [], {name: [] for name in matrix.parts}  # type: ignore[var-annotated]
    for adapter in own[:1] if shared else own:
        pairs = [(adapter.down, 1.0)]
        if adapter.start_down is not None:
            pairs.append((adapter.start_down, -1.0))
        for number, (down, sign) in enumerate(pairs):
            downs.append(down.detach())
            for name in matrix.parts:
                mine = adapters.get(name)
                rows = len(model.get_parameter(f"{name}.weight"))
                up = None if mine is None else mine.up if number == 0 else mine.start_up
                belongs = shared or mine is adapter
                if up is None or mine is None or not belongs:
                    ups[name].append(down.new_zeros(rows, len(down)))
                else:
                    factor = sign * mine.scale / own[0].scale
                    ups[name].append(up.detach() if factor == 1.0 else up.detach() * factor)
    down_RI = torch.cat(downs)
    rank = len(down_RI)
    tensors = {"A.weight": down_RI, "B.weight": matrix.join([torch.cat(ups[n], dim=1) for n in matrix.parts])}
    if value.variant == "dora":
        lengths = [_magnitude(model, name, adapters.get(name)) for name in matrix.parts]
        tensors["magnitude_vector"] = matrix.join(lengths)
    more = rank / len(own[0].down)  # times the rank of the first
    alpha = own[0].alpha * (more if value.scaling == "rank" else math.sqrt(more))
    return _JoinedLora(rank, alpha, tensors)


def _magnitude(model: TransformerModel, name: str, adapter: LoraAdapter | None) -> Tensor:
    """Of a layer without an adapter: the lengths of its rows, which leave it as it is."""
    if adapter is not None and adapter.magnitude is not None:
        return adapter.magnitude.detach()
    lengths: Tensor = model.get_parameter(f"{name}.weight").detach().float().norm(dim=1)
    return lengths


def _write_ia3(model: TransformerModel, attached: AttachedTuning, names: ModelNames) -> AdapterFiles:
    tensors: StateDict = {}
    hit, inside = list[str](), list[str]()
    for path, matrix, adapters in _adapted(model, attached, names, ScaleAdapter):
        sides = {adapter.side for adapter in adapters.values()}
        if len(sides) > 1:
            raise UnsupportedError(f"PEFT scales either inputs or outputs of {path}, here are both")
        if sides == {"in"}:
            tensors[f"{PREFIX}{path}.ia3_l"] = next(iter(adapters.values())).scale.detach()[None]
            inside.append(path)
        else:
            parts = [_scale(model, name, adapters.get(name)) for name in matrix.parts]
            tensors[f"{PREFIX}{path}.ia3_l"] = matrix.join(parts)[:, None]
        hit.append(path)
    every = list(names.matrices)
    return AdapterFiles(
        IA3_CONFIG
        | {
            "target_modules": _short_names(hit, every),
            "feedforward_modules": _short_names(inside, every),
            "fan_in_fan_out": any(names.matrices[path].rule.transpose for path in hit),
        },
        tensors,
    )


def _scale(model: TransformerModel, name: str, adapter: ScaleAdapter | None) -> Tensor:
    if adapter is not None:
        return adapter.scale.detach()
    rows = len(model.get_parameter(f"{name}.weight"))
    return torch.ones(rows)


def _adapted(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, kind: type[Any]
) -> Iterator[tuple[str, StoredMatrix, dict[str, Any]]]:
    """Every layer of theirs with an adapter in one of its parts."""
    left = set(attached.layers)
    for path, matrix in names.matrices.items():
        adapters = {name: _adapter(model, name) for name in matrix.parts if name in left}
        if any(".experts." in name for name in adapters) and not names.linear_experts:
            break
        if adapters:
            yield path, matrix, adapters
            left -= set(adapters)
    if left:
        raise UnsupportedError(
            f"PEFT has no format for an adapter of {sorted(left)[0]}: it is no linear layer of its own in "
            f"transformers"
        )


def _adapter(model: TransformerModel, name: str) -> Any:
    layer = model.get_submodule(name)
    assert isinstance(layer, WithAdapter)
    return layer.adapter


def _short_names(hit: Sequence[str], every: Sequence[str]) -> list[str]:
    """The shortest ends of names that name these modules and no others, as people write target_modules."""
    wanted = set(hit)
    for length in range(1, max((name.count(".") for name in hit), default=0) + 2):
        ends = {_end(name, length) for name in hit}
        if {name for name in every if _end(name, length) in ends} == wanted:
            return sorted(ends)
    return sorted(hit)


def _end(name: str, length: int) -> str:
    return ".".join(name.split(".")[-length:])


def _patterns(values: Mapping[str, Any], default: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != default}


def _most_common(values: Mapping[str, V]) -> V:
    return Counter(values.values()).most_common(1)[0][0]


def _whole(number: float) -> float:
    return int(number) if float(number).is_integer() else number


def _saved_modules(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> tuple[StateDict, list[str]]:
    """The parameters of the model itself that learn, as PEFT stores the modules they are in."""
    anyway = SAVED_ANYWAY.get(task_type or "", [])
    own = set(names.parameters)
    learned = [name for name in attached.trained if name in own]
    if isinstance(attached.value, Lora) and attached.value.bias != "none":
        learned = [name for name in learned if not name.endswith("bias")]
    parts = {name for name, ours in names.tensors.items() if set(ours) & set(learned)}
    modules = {name.rpartition(".")[0] for name in parts}
    inside = [n for n in names.tensors if any(n == m or n.startswith(f"{m}.") for m in modules)]
    needed = {ours for name in inside for ours in names.tensors[name]}
    exported = names.export(dict(model.named_parameters()), needed)
    every = [name.rpartition(".")[0] for name in names.tensors]
    listed = [m for m in sorted(modules) if not any(part in m.split(".") for part in anyway)]
    short = _short_names(listed, every) if listed else []
    return {PREFIX + name: x.detach() for name, x in exported.items()}, [*short, *anyway]


# Reading


def peft_tuning(files: AdapterFiles, names: ModelNames, model: TransformerModel) -> Tuning:
    """The value that describes an adapter of PEFT."""
    kind = files.config.get("peft_type")
    if kind == "LORA":
        return _read_lora(files, names, model)
    if kind == "IA3":
        return _read_ia3(files, names)
    raise LoadError(f"the adapter is PEFT's {quoted(kind)}, which is not supported; supported: LORA, IA3")


def _read_lora(files: AdapterFiles, names: ModelNames, model: TransformerModel) -> Lora:
    config = files.config
    for key, allowed in PLAIN_LORA.items():
        if key in config and config[key] not in allowed:
            raise LoadError(f"adapter_config.json: {key} is {quoted(config[key])}, which is not supported")
    start = config.get("init_lora_weights", True)
    if start not in (True, False, "gaussian", "eva", "orthogonal"):
        raise LoadError(
            f"adapter_config.json: init_lora_weights is {quoted(start)}, which changed the weights of the "
            f"base; convert the adapter with PEFT's path_initial_model_for_weight_conversion"
        )
    ranks, alphas = dict[str, int](), dict[str, float]()
    for path, x in _of_layers(files, names, "lora_A.weight").items():
        for name in names.matrices[path].parts:
            ranks[name] = len(x)
            alphas[name] = float(_pattern_value(config, "alpha_pattern", path, config.get("lora_alpha", 8)))
    if not ranks:
        raise LoadError("the adapter has no lora_A.weight of any layer; its file is empty or damaged")
    rank, alpha = _most_common(ranks), _most_common(alphas)
    every = [name for name in names.parameters if name.endswith(".weight")]
    return Lora(
        rank=rank,
        alpha=alpha,
        targets=tuple(_short_names(list(ranks), [name.removesuffix(".weight") for name in every])),
        scaling="sqrt-rank" if config.get("use_rslora") else "rank",
        variant="dora" if config.get("use_dora") else "lora",
        start="gaussian" if start == "gaussian" else "zero",
        dropout=float(config.get("lora_dropout") or 0.0),
        rank_pattern=tuple(_patterns(ranks, rank).items()),
        alpha_pattern=tuple(_patterns(alphas, alpha).items()),
        bias=config.get("bias") or "none",
    )


def _read_ia3(files: AdapterFiles, names: ModelNames) -> IA3:
    inside = files.config.get("feedforward_modules") or []
    sides: dict[bool, list[str]] = {True: [], False: []}
    for path in _of_layers(files, names, "ia3_l"):
        feedforward = any(path == end or path.endswith(f".{end}") for end in inside)
        sides[feedforward] += names.matrices[path].parts
    every = [name.removesuffix(".weight") for name in names.parameters if name.endswith(".weight")]
    outputs, inputs = (tuple(_short_names(sides[side], every)) for side in (False, True))
    return IA3(targets=outputs, feedforward=inputs)


def _of_layers(files: AdapterFiles, names: ModelNames, end: str) -> dict[str, Tensor]:
    """The tensors of the layers of the model that end so, by the names of the layers."""
    found = {}
    for name, x in files.tensors.items():
        if name.endswith(f".{end}"):
            path = name.removeprefix(PREFIX).removesuffix(f".{end}")
            if names.is_unused(f"{path}.weight"):
                continue
            if path not in names.matrices:
                raise LoadError(
                    f"the adapter has {quoted(name)}, and this model has no layer of that name; it is of "
                    f"another base"
                )
            found[path] = x
    return found


def _pattern_value(config: Mapping[str, Any], key: str, path: str, default: Any) -> Any:
    """The value of the first pattern that matches the end of a name, as PEFT matches them."""
    for pattern, value in (config.get(key) or {}).items():
        if not re.fullmatch(r"[\w.^$*]+", pattern) or len(pattern) > 200:
            raise LoadError(f"adapter_config.json: {key} has the pattern {quoted(pattern)}; expected a name")
        # Names with `.*` for anything; other regular expressions of a file are not run.
        literal = re.escape(pattern.strip("^$")).replace(r"\.\*", ".*")
        if re.fullmatch(rf"(.*\.)?({literal})", path):
            return value
    return default


def peft_state(
    files: AdapterFiles, model: TransformerModel, attached: AttachedTuning, names: ModelNames
) -> StateDict:
    """The parameters of a tuned model, under their names here, out of PEFT's tensors."""
    state: StateDict = {}
    used: set[str] = set()
    for path, matrix in names.matrices.items():
        adapters = {n: _adapter(model, n) for n in matrix.parts if n in attached.layers}
        if adapters:
            tensors = {n: x for n, x in files.tensors.items() if n.startswith(f"{PREFIX}{path}.")}
            reader = _split_lora if isinstance(next(iter(adapters.values())), LoraAdapter) else _split_ia3
            state |= reader(path, matrix, adapters, tensors, used)
    kept = unused_tensors(files, names)
    left = [name for name in files.tensors if name not in {*used, *kept} and _of_adapter(name)]
    if left:
        raise LoadError(f"the adapter has {quoted(left[0])}, and this model has no layer of that name")
    return state | peft_saved_modules(files, names)


def peft_saved_modules(files: AdapterFiles, names: ModelNames) -> StateDict:
    """The parameters of the model itself that an adapter of PEFT replaces."""
    kept = unused_tensors(files, names)
    rest = {
        name.removeprefix(PREFIX).replace("base_layer.", ""): x
        for name, x in files.tensors.items()
        if not _of_adapter(name) and name not in kept
    }
    own, unknown = names.load(rest)
    if unknown:
        raise LoadError(
            f"the adapter has {quoted(unknown[0])}, which this model does not have; it is of another base"
        )
    return own


def unused_tensors(files: AdapterFiles, names: ModelNames) -> list[str]:
    """Tensors for parts of transformers' class that the model here does not have, such as a pooler."""
    return [name for name in files.tensors if names.is_unused(_path_of(name))]


def _path_of(name: str) -> str:
    """The weight that a tensor of an adapter is for; the tensor itself if it is one of the model."""
    path = name.removeprefix(PREFIX).replace("base_layer.", "")
    return re.sub(ADAPTER_END, ".weight", path)


def _of_adapter(name: str) -> bool:
    return re.search(ADAPTER_END, name) is not None


def _split_lora(
    path: str,
    matrix: StoredMatrix,
    adapters: Mapping[str, LoraAdapter],
    tensors: Mapping[str, Tensor],
    used: set[str],
) -> StateDict:
    """The inverse of `_join_lora`, for adapters of these ranks."""
    found = {}
    for end in ("lora_A.weight", "lora_B.weight", "lora_magnitude_vector"):
        name = f"{PREFIX}{path}.{end}"
        if name in tensors:
            found[end] = tensors[name]
            used.add(name)
    if "lora_A.weight" not in found or "lora_B.weight" not in found:
        raise LoadError(f"the adapter lacks lora_A or lora_B of {path}; its file is damaged")
    down_RI, up_OR = found["lora_A.weight"], found["lora_B.weight"]
    ups = dict(zip(matrix.parts, matrix.split(up_OR), strict=True))
    own = list(adapters.values())
    shared = len(own) == len(matrix.parts) and all(a.down is own[0].down for a in own)
    state: StateDict = {}
    start = 0
    for name, adapter in adapters.items():
        first = 0 if shared else start
        for inner, sign in (("", 1.0), ("start_", -1.0)) if adapter.start_down is not None else (("", 1.0),):
            rows = slice(first, first := first + len(adapter.down))
            state[f"{name}.lora.{inner}down"] = down_RI[rows]
            # Exact: written with the scale of the first, and ranks of one tuning have one scale.
            state[f"{name}.lora.{inner}up"] = sign * ups[name][:, rows] * (own[0].scale / adapter.scale)
        start = first
    if "lora_magnitude_vector" in found:
        lengths = dict(zip(matrix.parts, matrix.split(found["lora_magnitude_vector"]), strict=True))
        state |= {f"{name}.lora.magnitude": lengths[name] for name in adapters}
    return state


def _split_ia3(
    path: str,
    matrix: StoredMatrix,
    adapters: Mapping[str, ScaleAdapter],
    tensors: Mapping[str, Tensor],
    used: set[str],
) -> StateDict:
    name = f"{PREFIX}{path}.ia3_l"
    if name not in tensors:
        raise LoadError(f"the adapter lacks ia3_l of {path}; its file is damaged")
    used.add(name)
    if all(adapter.side == "in" for adapter in adapters.values()):
        return {f"{part}.ia3.scale": tensors[name].flatten() for part in adapters}
    parts = dict(zip(matrix.parts, matrix.split(tensors[name].flatten()), strict=True))
    return {f"{part}.ia3.scale": parts[part] for part in adapters}
