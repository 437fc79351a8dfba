"""Writing a checkpoint: config and tensors in, a folder that `transformers` opens out; all or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ..errors import SaveError, one_line, quoted, reason
from .atomic import move_into_place
from .manifest import MANIFEST, has_manifest
from .shards import INDEX_FILE, WEIGHTS_FILE, is_bare_name

Shards = dict[str, list[str]]  # file name -> names of the tensors in it


def write_folder(
    folder: str | Path,
    *,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    generation: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    shard_bytes: int = 5 * 10**9,
) -> None:
    """Save a model. Files are first written beside the folder; other files in the folder are kept.

    A manifest is removed, because it describes the earlier files. `files` are written as they are, for
    example those of a tokenizer; a name may be in a subfolder.
    """
    folder = target_folder(folder)
    # A mount point has no siblings on its own disk, and only within a disk is a move a rename.
    parent = folder if os.path.ismount(folder) else folder.parent
    staging = parent / f".tmp-{folder.name}-{os.getpid()}"
    try:
        shards = _assign_shards(tensors, shard_bytes)
        texts = _other_files(config, generation, files or {}, shards, tensors)
        shutil.rmtree(staging, ignore_errors=True)  # left by a crashed process with the same pid
        _write_files(staging / "new", texts, shards, tensors)
        move_into_place(staging, folder, [*texts, *shards], [MANIFEST] if has_manifest(folder) else [])
    except SaveError:
        raise
    except Exception as error:  # the library has its own errors for a full disk; ours is one line
        raise SaveError(one_line(f"{folder} was not saved, and is as it was: {reason(error)}")) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def target_folder(name: str | Path) -> Path:
    if not isinstance(name, str | Path) or "\0" in str(name):
        raise SaveError(f"{quoted(name)} is not a folder name to save into")
    if not str(name):
        raise SaveError("the name of the folder to save into is empty")
    folder = Path(os.path.realpath(name))  # so that files are staged beside the target of a link
    if os.path.islink(folder):
        raise SaveError(one_line(f"{name} is a link that leads to itself; choose another folder"))
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise SaveError(one_line(f"{folder} is a file; expected a folder to save into: choose another name"))
    return folder


def _assign_shards(tensors: Mapping[str, Tensor], shard_bytes: int) -> Shards:
    """Which file each tensor goes into, in the given order; one larger than a shard gets a file alone."""
    groups: list[list[str]] = [[]]
    space = shard_bytes
    for name, x in tensors.items():
        if x.nbytes > space and groups[-1]:
            groups.append([])
            space = shard_bytes
        groups[-1].append(name)
        space -= x.nbytes
    if len(groups) == 1:
        return {WEIGHTS_FILE: groups[0]}
    count = len(groups)
    return {f"model-{i:05d}-of-{count:05d}.safetensors": names for i, names in enumerate(groups, start=1)}


def _other_files(
    config: Mapping[str, Any],
    generation: Mapping[str, Any] | None,
    files: Mapping[str, bytes],
    shards: Shards,
    tensors: Mapping[str, Tensor],
) -> dict[str, bytes]:
    """All files but the weights."""
    ours = {"config.json": _json(config)}
    if generation is not None:
        ours["generation_config.json"] = _json(generation)
    if WEIGHTS_FILE not in shards:
        weight_map = {name: shard for shard, names in shards.items() for name in names}
        size = sum(x.nbytes for x in tensors.values())
        ours[INDEX_FILE] = _json({"metadata": {"total_size": size}, "weight_map": weight_map})
    for name in files:
        if (
            name in ours
            or name in shards
            or name == MANIFEST
            or not all(is_bare_name(part) for part in name.split("/"))
        ):
            message = f"{quoted(name)} cannot be saved as an additional file"
            raise SaveError(f"{message}; expected a relative name that no part of the model has")
    return {**files, **ours}


def _write_files(
    new: Path, texts: Mapping[str, bytes], shards: Shards, tensors: Mapping[str, Tensor]
) -> None:
    for name, data in texts.items():
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).write_bytes(data)
    for shard, names in shards.items():  # one shard in memory at a time, where copies are needed at all
        save_file(
            _without_shared_memory({name: tensors[name] for name in names}), new / shard, {"format": "pt"}
        )
        # safetensors creates files that only the owner can read.
        shutil.copymode(new / "config.json", new / shard)


def _without_shared_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What safetensors requires: contiguous tensors that share no memory. Others are not copied."""
    pieces = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    end = 0
    for name, x in sorted(pieces.items(), key=lambda item: item[1].data_ptr()):
        if x.data_ptr() < end:
            pieces[name] = x.clone()
        end = max(end, x.data_ptr() + x.nbytes)
    return pieces


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
