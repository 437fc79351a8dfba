"""Sentence-transformers folders: `modules.json` and its neighbours in, how to pool a sentence out.

modules         the kinds of all modules, in order: Transformer, Pooling, Dense, Normalize
modes           cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken; several are concatenated
normalize       whether a Normalize module follows the pooling
include_prompt  whether the words of a prompt count as well
max_seq_length  how many tokens a sentence is cut to; None if not specified
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import LoadError, nearest, one_line, quoted
from ..readfile import read_json, read_object
from .shards import is_bare_name

# The old spelling, a flag per mode, in the order in which several are concatenated.
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def read_pooling(folder: Path) -> dict[str, Any] | None:
    """How to pool tokens into a sentence vector; None if the folder does not specify it."""
    if not os.path.lexists(folder / "modules.json"):
        return None
    modules = _modules(folder / "modules.json")
    kinds = [kind for kind, _ in modules]
    if "Pooling" not in kinds:
        return None
    at = kinds.index("Pooling")
    path = folder / modules[at][1] / "config.json"
    config = read_object(path)
    return {
        "modules": kinds,
        "modes": _modes(path, config),
        "normalize": "Normalize" in kinds[at:],
        "include_prompt": config.get("include_prompt", True) is not False,
        "max_seq_length": _max_seq_length(folder / "sentence_bert_config.json"),
    }


def _modules(path: Path) -> list[tuple[str, str]]:
    """The kind and the subfolder of each module; the kind is the last word of its class name."""
    listed = read_json(path)
    is_valid = isinstance(listed, list) and all(
        isinstance(m, dict)
        and isinstance(m.get("type"), str)
        and (m.get("path") == "" or is_bare_name(m.get("path")))
        for m in listed
    )
    if not is_valid:
        message = f"{path} is not a list of modules, each with a type and a path that is a bare folder name"
        raise LoadError(one_line(f"{message}; remove it to load the model without pooling"))
    return [(module["type"].rsplit(".", 1)[-1], module["path"]) for module in listed]


def _modes(path: Path, config: dict[str, Any]) -> list[str]:
    mode = config.get("pooling_mode")
    if mode is None:
        return [name for flag, name in FLAGS.items() if config.get(flag)] or ["mean"]
    modes = mode if isinstance(mode, list) else [mode]
    unknown = [name for name in modes if name not in FLAGS.values()]
    if unknown or not modes:
        hint = nearest(quoted(unknown[0] if unknown else ""), FLAGS.values())
        raise LoadError(one_line(f"{path} pools by {quoted(mode)}; {hint}"))
    return modes


def _max_seq_length(path: Path) -> int | None:
    if not os.path.lexists(path):
        return None
    length = read_object(path).get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise LoadError(
            one_line(f"{path} has max_seq_length {quoted(length)}; expected a whole number above 0")
        )
    return length


def pooling_files(pooling: Mapping[str, Any], width: int, stored: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files by which sentence-transformers knows how to pool; those that are stored already stay."""
    if "modules.json" in stored:
        return {}
    kinds = ["Transformer", "Pooling", *(["Normalize"] if pooling["normalize"] else [])]
    folders = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    modules = [
        {"idx": i, "name": str(i), "path": folder, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, folder) in enumerate(zip(kinds, folders, strict=True))
    ]
    flags = {flag: mode in pooling["modes"] for flag, mode in FLAGS.items()}
    files = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": width, **flags},
        "sentence_bert_config.json": {
            "max_seq_length": pooling.get("max_seq_length"),
            "do_lower_case": False,
        },
    }
    return {name: (json.dumps(value, indent=2) + "\n").encode() for name, value in files.items()}
