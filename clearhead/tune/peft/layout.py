"""How PEFT names what it stores: layers and tensors of an adapter, under the names of transformers' class.

    base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
    ~~~~~~~~~~~~~~~~ LAYER_PREFIX                          ~~~~~~~~~~~~~ ADAPTER_END

Where that class has one layer for several of ours (q, k and v of GPT-2), so has the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor

from ...errors import LoadError, UnsupportedError, quoted
from ...nn import TransformerModel
from ...weights import StoredMatrix
from ..files import AdapterFiles
from ..linear import LayerAdapter, WithAdapter
from ..names import ModelNames
from ..tuning import AttachedTuning

V = TypeVar("V")

LAYER_PREFIX = "base_model.model."
PROMPT_PREFIX = "base_model."  # of the modules beside virtual tokens
PROMPT = "prompt_embeddings"  # the only tensor of virtual tokens
ADAPTER_END = re.compile(r"\.(lora_\w+|ia3_l)(\.\w+)?$")
# The keys that every adapter_config.json has, with the defaults of this version of PEFT.
COMMON: dict[str, Any] = {
    "auto_mapping": None, "base_model_name_or_path": None, "inference_mode": True, "modules_to_save": None,
    "peft_version": "0.21.2", "revision": None, "task_type": None,
}  # fmt: skip
LONGEST_PATTERN = 200  # characters


def is_inactive(value: object) -> bool:
    """Whether the value of a key says that there is nothing of that kind."""
    return value is None or (isinstance(value, bool | int | float | str | dict | list) and not value)


def is_of_adapter(name: str) -> bool:
    """Whether a tensor belongs to an adapter, and not to a module of the model that was trained as well."""
    return name == PROMPT or ADAPTER_END.search(name) is not None


def model_name(name: str) -> str:
    """The tensor of the model that a tensor of an adapter folder is, or is for."""
    plain = name.removeprefix(LAYER_PREFIX).removeprefix(PROMPT_PREFIX).replace("base_layer.", "")
    return ADAPTER_END.sub(".weight", plain)


def unused_tensors(files: AdapterFiles, names: ModelNames) -> list[str]:
    """Tensors for parts of transformers' class that the model here does not have, such as a pooler."""
    return [name for name in files.tensors if name != PROMPT and names.is_unused(model_name(name))]


def adapted_layers(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames
) -> Iterator[tuple[str, StoredMatrix, dict[str, Any]]]:
    """Every layer of theirs with an adapter in one of its parts, and the adapters of these, by our names."""
    left = set(attached.layers)
    for path, matrix in names.matrices.items():
        adapters = {name: adapter_at(model, name) for name in matrix.parts if name in left}
        if any(".experts." in name for name in adapters) and not names.linear_experts:
            break
        if adapters:
            yield path, matrix, adapters
            left -= set(adapters)
    if left:
        raise UnsupportedError(f"{sorted(left)[0]} is no layer of its own in transformers")


def adapter_at(model: TransformerModel, name: str) -> LayerAdapter:
    layer = model.get_submodule(name)
    assert isinstance(layer, WithAdapter)
    return layer.adapter


def outputs_of(model: TransformerModel, name: str) -> int:
    return len(model.get_parameter(f"{name}.weight"))


def layer_tensors(files: AdapterFiles, names: ModelNames, end: str) -> dict[str, Tensor]:
    """The tensors with this end, by the layers of theirs; each must be one of the model."""
    found = {}
    for name in files.tensors:
        if not name.endswith(f".{end}"):
            continue
        path = name.removeprefix(LAYER_PREFIX).removesuffix(f".{end}")
        if path in names.matrices:
            found[path] = files.tensors[name]
        elif any(f"{path}.weight" in others for others in names.tied.values()):
            raise LoadError(
                f"the adapter has {quoted(name)}, and {path} is tied to the table of embeddings in this "
                f"model; LoRA on it is not supported"
            )
        elif not names.is_unused(f"{path}.weight"):
            raise LoadError(
                f"the adapter has {quoted(name)}, and this model has no layer of that name; it is of another "
                f"base"
            )
    return found


def our_layers(names: ModelNames) -> list[str]:
    return [name.removesuffix(".weight") for name in names.parameters if name.endswith(".weight")]


def short_names(hit: Sequence[str], every: Sequence[str], *, inside_words: bool = False) -> list[str]:
    """The shortest ends of names that name these modules and no others, as people write target_modules.

    `inside_words`: an end names what ends with it, as in modules_to_save, even after another letter.
    """
    wanted = set(hit)
    for length in range(1, max((name.count(".") for name in hit), default=0) + 2):
        ends = {_end(name, length) for name in hit}
        before = "" if inside_words else "."
        if {name for name in every if f".{name}".endswith(tuple(before + end for end in ends))} == wanted:
            return sorted(ends)
    return sorted(hit)


def _end(name: str, length: int) -> str:
    return ".".join(name.split(".")[-length:])


def most_common(values: Mapping[str, V]) -> V:
    return Counter(values.values()).most_common(1)[0][0]


def unlike(values: Mapping[str, V], default: V) -> dict[str, V]:
    """The values that are not the default, as PEFT's patterns list them."""
    return {name: value for name, value in values.items() if value != default}


def pattern_values(config: Mapping[str, Any], key: str, path: str, default: Any) -> list[Any]:
    """The values of the patterns that match the end of a name, as PEFT matches them: the first counts.

    In a file they are sorted by name, which may be another order than that of the training.
    """
    found = []
    patterns = config.get(key) or {}
    if not isinstance(patterns, dict):
        raise LoadError(f"adapter_config.json: {key} is {quoted(patterns)}; expected names with values")
    for pattern, value in patterns.items():
        if not re.fullmatch(r"[\w.^$*]+", pattern) or len(pattern) > LONGEST_PATTERN:
            raise LoadError(f"adapter_config.json: {key} has the pattern {quoted(pattern)}; expected a name")
        # Names, with `.*` for anything: other regular expressions of a file are not run.
        literal = re.escape(pattern.strip("^$")).replace(r"\.\*", ".*")
        if re.fullmatch(rf"(.*\.)?({literal})", path):
            found.append(value)
    return found or [default]


def whole(number: float) -> float:
    """16.0 as 16, which PEFT writes."""
    return int(number) if float(number).is_integer() else number
