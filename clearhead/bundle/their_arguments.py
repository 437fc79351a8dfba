"""Arguments of `from_pretrained` as transformers names them in; our dtype and device out, or one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from ..errors import InputError, nearest, quoted

# What people pass to transformers for the same wish, and what it is here.
INSTEAD_OF = {
    "num_labels": "head='labels', labels=['neg', 'pos']",
    "id2label": "head='labels', labels=['neg', 'pos']",
    "label2id": "head='labels', labels=['neg', 'pos']",
    "ignore_mismatched_sizes": "head='labels', labels=['neg', 'pos']",
    "revision": "the name with the revision: 'org/name@main'",
    "load_in_8bit": "precision='int8'",
    "load_in_4bit": "precision='int4'",
    "quantization_config": "precision='int8'",
    "attn_implementation": "edit={'Attention.kernel': 'Window(256)'} for another kernel; else leave it out",
    "config": "edit={'Tower.depth': 2} for changes",
    "trust_remote_code": "nothing: no code of a checkpoint is run; leave it out",
    "use_safetensors": "nothing: only safetensors are read; leave it out",
    "low_cpu_mem_usage": "nothing: weights are mapped from the file; leave it out",
    "local_files_only": "the environment variable HF_HUB_OFFLINE=1",
    "cache_dir": "the environment variable HF_HOME",
    "token": "the environment variable HF_TOKEN",
}
SAME_ARGUMENTS = {"torch_dtype": "dtype", "device_map": "device"}
DTYPE_NAMES = ("float32", "float16", "bfloat16", "float64")
ARGUMENTS = (
    "dtype", "device", "precision", "quantize", "keep", "edit", "head", "labels", "allow_missing", "seed",
)  # fmt: skip


def their_arguments(
    given: Mapping[str, Any], dtype: torch.dtype | str | None, device: str | None
) -> tuple[torch.dtype | str | None, str | None]:
    """Our dtype and device; `torch_dtype` and `device_map` are understood, any other argument is an error."""
    for name, value in given.items():
        if name == "torch_dtype" and dtype is None:
            dtype = None if value == "auto" else value  # "auto": as it is stored, which is the default here
        elif name == "device_map" and device is None:
            device = _one_device(value)
        elif name in SAME_ARGUMENTS:
            raise InputError(f"{name} and {SAME_ARGUMENTS[name]} are the same; give one of them")
        elif name in INSTEAD_OF:
            raise InputError(f"{name} is an argument of transformers; here it is {INSTEAD_OF[name]}")
        else:
            raise InputError(f"load has no argument {name!r}; {nearest(name, ARGUMENTS)}")
    return dtype, device


def as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """A dtype by its name."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_NAMES:
        raise InputError(f"dtype is {dtype!r}; {nearest(name, DTYPE_NAMES)}")
    return cast(torch.dtype, getattr(torch, name))


def _one_device(value: object) -> str | None:
    """`device_map` may spread a model over devices, which is not supported here."""
    if isinstance(value, Mapping) and len(set(value.values())) == 1:
        value = next(iter(value.values()))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"cuda:{value}"
    if value is None or isinstance(value, str | torch.device):
        return None if value is None else str(value)
    raise InputError(f"device_map is {quoted(value)}; a model is on one device here: device='auto'")
