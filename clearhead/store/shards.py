"""Weight files: a folder in, its tensors out, from `model.safetensors` or from the shards an index names."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath, PureWindowsPath

from ..errors import LoadError, one_line, quoted
from ..readfile import MAX_FILE_BYTES, read_object
from .tensors import Tensors

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
SHARD_NAME = re.compile(r"model-\d+-of-\d+\.safetensors")
PICKLES = {".bin", ".pt", ".pth", ".ckpt"}
NOT_WEIGHTS = {"training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"}


def open_tensors(folder: Path) -> Tensors:
    """The tensors of a folder. A single file takes precedence over an index, as in `transformers`."""
    if os.path.lexists(folder / WEIGHTS_FILE):
        return Tensors([_check_regular(folder / WEIGHTS_FILE)])
    if os.path.lexists(folder / INDEX_FILE):
        return _open_shards(folder)
    raise LoadError(one_line(_explain_missing_weights(folder)))


def is_weights(name: str) -> bool:
    """Whether a file of this name holds the weights of a folder, or says where they are."""
    return name in (WEIGHTS_FILE, INDEX_FILE) or SHARD_NAME.fullmatch(name) is not None


def is_bare_name(name: object) -> bool:
    """A plain file name on every system: no separators, no drive, no `..`."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and "\0" not in name
        and PurePosixPath(name).name == name == PureWindowsPath(name).name
    )


def _open_shards(folder: Path) -> Tensors:
    index = folder / INDEX_FILE
    weight_map = read_object(index, MAX_FILE_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise LoadError(one_line(f"{index} has no weight_map; expected an object of tensor names and files"))
    for name, shard in weight_map.items():
        if not is_bare_name(shard) or not shard.endswith(".safetensors"):
            message = f"{index} says {quoted(name)} is in {quoted(shard)}"
            raise LoadError(one_line(f"{message}; expected the bare name of a .safetensors file beside it"))
    shards = sorted(set(weight_map.values()))
    missing = [shard for shard in shards if not os.path.lexists(folder / shard)]
    if missing:
        message = f"{folder} lacks {len(missing)} of the {len(shards)} files its index names"
        raise LoadError(one_line(f"{message}, the first is {quoted(missing[0])}; copy or download them"))
    tensors = Tensors([_check_regular(folder / shard) for shard in shards])
    for name, shard in weight_map.items():
        if name not in tensors or tensors.file(name).name != shard:
            message = f"{index} says {quoted(name)} is in {quoted(shard)}, and it is not"
            raise LoadError(one_line(f"{message}; the files are not of one save: copy them all again"))
    return tensors


def _check_regular(path: Path) -> Path:
    """Raise for pipes and devices: reading one could block or never end."""
    if not os.path.isfile(path):
        raise LoadError(one_line(f"{path} is not a file that can be read; expected safetensors weights"))
    return path


def _explain_missing_weights(folder: Path) -> str:
    """Why no weights were found, and what to do."""
    names = sorted(os.listdir(folder))
    pickles = [n for n in names if Path(n).suffix in PICKLES and n not in NOT_WEIGHTS]
    if pickles:
        return (
            f"{folder} has its weights in {quoted(pickles[0])}, a pickle, which can run code and is not "
            f"read here; if you trust it, open it in transformers and call save_pretrained(folder, "
            f"safe_serialization=True)"
        )
    shards = [n for n in names if SHARD_NAME.fullmatch(n)]
    if shards:
        first = f"{len(shards)} shards such as {shards[0]}"
        return f"{folder} has {first} but no {INDEX_FILE}; copy or download it, too"
    others = [n for n in names if n.endswith((".safetensors", ".h5", ".msgpack", ".onnx", ".gguf"))]
    others_note = f"; it has {quoted(others[0])}" if others else ""
    return f"{folder} has no weights{others_note}; expected {WEIGHTS_FILE}, or shards with {INDEX_FILE}"
