"""Adapter folders: a folder in, its configs and tensors out; and back, all or nothing.

    adapter_config.json          as PEFT writes it; or what a tuning is that PEFT has no format for
    adapter_model.safetensors    its tensors
    clearhead.json               the tuning as a value, and the base: its name and its fingerprint
    generation_config.json       where answers end, if that was learned; and the files of the tokenizer

Weights of the base are not in it. `adapter.safetensors` is what the library adapters calls its tensors, and
`model_head.safetensors` those of a head.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ..errors import LoadError, SaveError, one_line, quoted, reason
from ..readfile import read_object
from ..text import Tokenizer
from .atomic import CONFIG_FILE, move_into_place
from .manifest import MANIFEST, has_manifest
from .shards import is_weights
from .tensors import Tensors
from .write import target_folder

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_INFO = "clearhead.json"
GENERATION_CONFIG = "generation_config.json"
WEIGHTS_OF_ADAPTERS = "adapter.safetensors"  # of the library `adapters`
HEAD_OF_ADAPTERS = ("head_config.json", "model_head.safetensors", "pytorch_model_head.bin")
PICKLE_OF_ADAPTERS = "pytorch_adapter.bin"
PICKLED_WEIGHTS = ("adapter_model.bin", PICKLE_OF_ADAPTERS, "adapter_model.pt")


@dataclass(frozen=True)
class AdapterFolder:
    """The content of an adapter folder; nothing is interpreted yet."""

    folder: Path
    config: dict[str, Any]
    tensors: Tensors
    info: dict[str, Any]  # clearhead.json; empty where another library wrote the folder
    tokenizer: Tokenizer | None = None  # where the folder has one of its own
    generation: dict[str, Any] = field(default_factory=dict)  # generation_config.json, where it has one
    heads: tuple[str, ...] = ()  # files with a head that the library adapters wrote


def is_adapter_folder(path: Path) -> bool:
    """Whether a folder holds an adapter, and no model of its own."""
    if not (path / ADAPTER_CONFIG).is_file():
        return False
    return not any(is_weights(name) for name in os.listdir(path))


def read_adapter_folder(folder: Path) -> AdapterFolder:
    for name in (ADAPTER_WEIGHTS, WEIGHTS_OF_ADAPTERS):
        if (folder / name).is_file():
            info, generation = folder / ADAPTER_INFO, folder / GENERATION_CONFIG
            return AdapterFolder(
                folder,
                read_object(folder / ADAPTER_CONFIG),
                Tensors([folder / name]),
                read_object(info) if info.is_file() else {},
                Tokenizer.read(folder),
                read_object(generation) if generation.is_file() else {},
                tuple(name for name in HEAD_OF_ADAPTERS if os.path.lexists(folder / name)),
            )
    pickles = [name for name in PICKLED_WEIGHTS if os.path.lexists(folder / name)]
    if pickles:
        how = "open it in PEFT and call save_pretrained(folder)"
        if pickles[0] == PICKLE_OF_ADAPTERS:
            how = "open it in adapters and call save_adapter(folder, name, use_safetensors=True)"
        raise LoadError(
            f"{folder} has its adapter in {pickles[0]}, a pickle, which can run code and is not read here; "
            f"if you trust it, {how}"
        )
    raise LoadError(one_line(f"{folder} has {ADAPTER_CONFIG} and no {ADAPTER_WEIGHTS}; copy it, too"))


def write_adapter_folder(
    folder: str | Path,
    *,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    info: Mapping[str, Any],
    files: Mapping[str, bytes],
) -> None:
    """Save an adapter. Files are first written beside the folder; other files in it are kept."""
    folder = target_folder(folder)
    if (folder / CONFIG_FILE).exists() and any(is_weights(name) for name in os.listdir(folder)):
        raise SaveError(one_line(f"{folder} holds a model; save the adapter into a folder of its own"))
    parent = folder if os.path.ismount(folder) else folder.parent
    staging = parent / f".tmp-{folder.name}-{os.getpid()}"
    texts = {
        **files,
        # As PEFT writes it, to the byte.
        ADAPTER_CONFIG: json.dumps(config, indent=2, sort_keys=True).encode(),
        ADAPTER_INFO: (json.dumps(info, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    try:
        shutil.rmtree(staging, ignore_errors=True)
        new = staging / "new"
        for name, data in texts.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(data)
        own = {name: x.detach().cpu().clone().contiguous() for name, x in tensors.items()}
        save_file(own, new / ADAPTER_WEIGHTS, {"format": "pt"})
        shutil.copymode(new / ADAPTER_CONFIG, new / ADAPTER_WEIGHTS)
        outdated = [MANIFEST] if folder.exists() and has_manifest(folder) else []
        move_into_place(staging, folder, [*texts, ADAPTER_WEIGHTS], outdated, config=ADAPTER_CONFIG)
    except SaveError:
        raise
    except Exception as error:  # the library has its own errors for a full disk; ours is one line
        raise SaveError(one_line(f"{folder} was not saved, and is as it was: {reason(error)}")) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_info(info: Mapping[str, Any]) -> None:
    """Raise an error for a clearhead.json that another version wrote, or that is damaged."""
    if info and info.get("format") != 1:
        raise LoadError(f"{ADAPTER_INFO} has format {quoted(info.get('format'))}; expected 1")
