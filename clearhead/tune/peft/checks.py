"""What a folder of PEFT says is checked before it is believed: its config and its tensors in; one error out.

A key that is not known may mean other numbers, so one with a value that does something is refused.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...errors import LoadError, quoted
from ..files import AdapterFiles
from ..names import ModelNames
from .layout import LAYER_PREFIX, is_inactive, pattern_values

# Keys that other versions of PEFT write, and that change nothing of what an adapter computes.
HARMLESS = ("runtime_config", "merge_weights")
LIMIT = 2**31  # of a whole number


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < LIMIT


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _is_names(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(each, str) and each for each in value)
    )


def _is_pattern(value: object) -> bool:
    return isinstance(value, str) or _is_names(value)


def _is_flag(value: object) -> bool:
    return value is None or isinstance(value, bool)


def _is_name(value: object) -> bool:
    return value is None or isinstance(value, str)


_COUNT = (_is_count, "a whole number of at least 1")
_POSITIVE = (_is_positive, "a number above 0")
_NAMES = (_is_names, "a list of names")
_FLAG = (_is_flag, "true or false")
_PATTERN = (_is_pattern, "a name or a list of names")
_NAME = (_is_name, "a name")
# What a value must be, where its key is in the file.
VALUES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "r": _COUNT, "lora_alpha": _POSITIVE, "lora_dropout": (_is_rate, "a number from 0 to below 1"),
    "bias": (lambda x: x in (None, "none", "all", "lora_only"), "none, all or lora_only"),
    "use_rslora": _FLAG, "use_dora": _FLAG, "ensure_weight_tying": _FLAG, "target_modules": _PATTERN,
    "exclude_modules": _PATTERN, "feedforward_modules": _PATTERN, "modules_to_save": _NAMES,
    "num_virtual_tokens": _COUNT, "task_type": _NAME, "base_model_name_or_path": _NAME,
    "num_transformer_submodules": (lambda x: x is None or x in (1, 2), "1 or 2"),
}  # fmt: skip
_PATTERNS = {"rank_pattern": _COUNT, "alpha_pattern": _POSITIVE}


def check_peft_config(config: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """`known` are the keys that this method has."""
    for key, value in config.items():
        if key in HARMLESS:
            continue
        if key not in known and not is_inactive(value):
            raise LoadError(
                f"adapter_config.json: {quoted(key)} is {quoted(value)}, which is not known here and "
                f"may change what the adapter computes"
            )
        if key in VALUES:
            _check(key, value, *VALUES[key])
        if key in _PATTERNS and value is not None:
            _check(key, value, lambda x: isinstance(x, dict), "names with values")
            for pattern, each in value.items():
                _check(f"{key} of {quoted(pattern)}", each, *_PATTERNS[key])


def _check(key: str, value: object, is_right: Callable[[object], bool], expected: str) -> None:
    if not is_right(value):
        raise LoadError(f"adapter_config.json: {key} is {quoted(value)}; expected {expected}")


def check_tensors(files: AdapterFiles) -> None:
    for name in files.tensors:
        x = files.tensors[name]
        if not x.is_floating_point():
            kind = str(x.dtype).removeprefix("torch.")
            raise LoadError(f"the adapter has {quoted(name)} as {kind}; expected floating point")
        if not bool(torch.isfinite(x).all()):
            raise LoadError(f"the adapter has {quoted(name)} with numbers that are not finite; it is damaged")


def check_ranks(files: AdapterFiles, path: str, rank: int) -> None:
    """The rank of a layer must be what the config says: the scale is computed from it."""
    wanted = pattern_values(files.config, "rank_pattern", path, files.config.get("r", 8))
    if rank not in wanted:
        raise LoadError(
            f"adapter_config.json says rank {wanted[0]} for {path}, and its lora_A has {rank} rows; "
            f"one of the two files is of another adapter"
        )


def check_complete(files: AdapterFiles, names: ModelNames) -> None:
    """Raise an error if layers that the targets name are missing beside others of their kind.

    A kind is the name of a layer without its numbers. Targets that are a regular expression are not run.
    """
    config = files.config
    targets = config.get("target_modules")
    chosen = ("layers_to_transform", "layers_pattern", "exclude_modules")
    if not isinstance(targets, list) or not all(is_inactive(config.get(key)) for key in chosen):
        return
    ends = (".lora_A.weight", ".ia3_l")
    stored = {
        n.removeprefix(LAYER_PREFIX).removesuffix(end)
        for n in files.tensors
        for end in ends
        if n.endswith(end)
    }
    kinds: dict[str, list[str]] = defaultdict(list)
    for path in names.matrices:
        if any(path == each or path.endswith(f".{each}") for each in targets):
            kinds[re.sub(r"(?<=\.)\d+(?=\.)", "*", path)].append(path)
    for paths in kinds.values():
        missing = [path for path in paths if path not in stored]
        if missing and len(missing) < len(paths):
            raise LoadError(
                f"the adapter lacks {missing[0]}, which its target_modules name, and has "
                f"{len(paths) - len(missing)} other layers of this kind; its file is damaged"
            )
