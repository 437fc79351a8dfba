"""Checkpoint folders: a Hugging Face folder in, its config and its tensors out. No network, no copies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LoadError, one_line, quoted, reason
from ..readfile import read_object
from .pooling import read_pooling
from .shards import open_tensors
from .tensors import Tensors


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The content of a checkpoint folder; nothing is interpreted yet."""

    folder: Path
    config: dict[str, Any]
    tensors: Tensors
    generation: dict[str, Any]  # generation_config.json, empty where there is none
    pooling: dict[str, Any] | None  # how to pool tokens into a sentence vector; see pooling.py


def read_folder(folder: str | Path) -> Checkpoint:
    """Read the headers of a folder; the weights are memory-mapped and read on first use."""
    folder = _existing_folder(folder)
    try:
        generation = folder / "generation_config.json"
        return Checkpoint(
            folder=folder,
            config=read_object(_config_path(folder)),
            tensors=open_tensors(folder),
            generation=read_object(generation) if os.path.lexists(generation) else {},
            pooling=read_pooling(folder),
        )
    except OSError as error:  # a folder we may not list, a disk that fails
        raise LoadError(one_line(f"{folder} cannot be read: {reason(error)}")) from error


def _existing_folder(name: str | Path) -> Path:
    folder = Path(name)
    if not str(name) or not os.path.lexists(folder):
        raise LoadError(one_line(f"no folder {quoted(str(name))}; expected one with config.json and weights"))
    if not os.path.isdir(folder):
        message = f"{folder} is not a folder; expected one with config.json and weights"
        raise LoadError(one_line(f"{message}: pass the folder that holds the file"))
    return folder


def _config_path(folder: Path) -> Path:
    path = folder / "config.json"
    if os.path.lexists(path):
        return path
    message = f"{folder} has no config.json; expected a Hugging Face folder"
    subfolders = sorted(path.parent.name for path in folder.glob("*/config.json"))
    if subfolders:
        message += f"; its subfolder {quoted(subfolders[0])} has one"
    raise LoadError(one_line(message))
