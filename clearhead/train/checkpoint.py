"""The format of a checkpoint: a model folder that `transformers` opens, plus the state of the run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from .. import store
from ..bundle import Bundle, adapter_weights, is_adapter, save, saved_weights
from ..errors import ClearheadError, LoadError, SpecError, TrainError, one_line, quoted, reason
from ..readfile import read_object
from ..spec import Spec
from ..store import ADAPTER_CONFIG, ADAPTER_INFO, ADAPTER_WEIGHTS, Tensors, is_weights, write_manifest
from ..weights import StateDict as Weights
from .atomic_write import checkpoint_name, disk_errors, write_atomically
from .state import TrainingState

ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_INFO, ADAPTER_WEIGHTS)
STATE_FILE, TENSORS_FILE = "state.json", "state.safetensors"


def write_model(bundle: Bundle, folder: Path) -> None:
    """Write a Hugging Face folder; for a model of no known family, config.json holds the spec instead."""
    if bundle.family is not None or is_adapter(bundle):
        save(bundle, folder)
        return
    store.write_folder(
        folder,
        config={"model_type": "clearhead", "spec": bundle.spec.to_dict()},
        tensors={name: p.detach() for name, p in bundle.model.named_parameters()},
        generation=bundle.generation or None,
        files={**bundle.files, **(bundle.tokenizer.files if bundle.tokenizer else {})},
    )


def publish_model(bundle: Bundle, folder: Path, step: int) -> None:
    """Write the final model into the run folder itself, with a manifest of the model's files alone."""
    write_model(bundle, folder)
    names = {*bundle.files, *(bundle.tokenizer.files if bundle.tokenizer else ())}
    names |= {"config.json", "generation_config.json", *ADAPTER_FILES}
    with disk_errors(folder):
        there = [name for name in names if (folder / name).exists()]
        write_manifest(folder, [*there, *(name for name in os.listdir(folder) if is_weights(name))], step)


def write_checkpoint(
    folder: Path,
    bundle: Bundle,
    state: TrainingState,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
) -> Path:
    """`facts` describe what the run depends on; they are stored in state.json beside its progress."""

    def fill(staging: Path) -> None:
        write_model(bundle, staging)
        save_file({name: x.detach().cpu() for name, x in tensors.items()}, staging / TENSORS_FILE)
        content = {"format": 1, "state": state.to_dict(), **facts}
        (staging / STATE_FILE).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        # safetensors writes files that only the owner may read.
        shutil.copymode(staging / STATE_FILE, staging / TENSORS_FILE)

    return write_atomically(folder, state.step, fill)


def read_state(checkpoint: Path) -> tuple[TrainingState, dict[str, Any]]:
    """The progress of a run, and the facts it depends on."""
    content = read_object(checkpoint / STATE_FILE)
    if content.get("format") != 1 or not isinstance(content.get("state"), dict):
        message = f"{checkpoint / STATE_FILE} has format {quoted(content.get('format'))}; expected 1"
        raise LoadError(one_line(f"{message}: it is of another version"))
    state = TrainingState.from_dict(content["state"])
    if checkpoint.name != checkpoint_name(state.step):
        raise LoadError(f"{checkpoint / STATE_FILE} is of step {state.step}; expected that of its folder")
    return state, content


def read_tensors(checkpoint: Path, prefix: str) -> Weights:
    """The tensors whose names begin with `prefix` (`optimizer.` or `ema.`), named without it."""
    stored = Tensors([checkpoint / TENSORS_FILE])
    return {name.removeprefix(prefix): stored[name] for name in stored if name.startswith(prefix)}


def read_weights(bundle: Bundle, checkpoint: Path) -> Weights:
    """The weights of a checkpoint that this bundle wrote, under the names of our modules."""
    if is_adapter(bundle):
        return adapter_weights(bundle, checkpoint)
    tensors = store.read_folder(checkpoint).tensors
    try:
        return saved_weights(bundle, tensors)
    except ClearheadError:
        raise
    except (ValueError, RuntimeError, IndexError) as error:  # shapes that cannot be split or transposed
        raise LoadError(f"{checkpoint} holds weights of another model: {reason(error)}") from None


def check_same_config(checkpoint: Path, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raise if the settings differ from those of the checkpoint, naming the first difference."""
    current = _flatten(ours)
    try:
        saved = _flatten({key: _upgrade_spec(theirs.get(key), ours[key]) for key in ours})
    except (TypeError, AttributeError, RecursionError):  # values of kinds that no version ever wrote
        raise LoadError(f"{checkpoint / STATE_FILE} does not record the settings of the run") from None
    for key in [*current, *saved]:
        if current.get(key) != saved.get(key):
            difference = f"{key} is {quoted(current.get(key))} here and {quoted(saved.get(key))} there"
            message = f"{checkpoint} was written with another config: {difference}"
            raise TrainError(one_line(f"{message}; give the same settings, or choose another folder"))


def _upgrade_spec(value: Any, ours: Any) -> Any:
    """A spec of an older version, with fields added since then at their defaults."""
    if not isinstance(value, dict) or "kind" not in value:
        return value
    try:
        current = Spec.from_dict(value).to_dict()
    except SpecError:  # it has a field that no longer exists: the comparison will name it
        return value
    return {key: item for key, item in current.items() if key in value or key in ours}


def _flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Nested settings as one level of dotted names."""
    if isinstance(value, Mapping):
        parts = [(f"{name}.{key}" if name else str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{name}.{i}", item) for i, item in enumerate(value)]
    else:
        return {name: value}
    return {key: leaf for part, item in parts for key, leaf in _flatten(item, part).items()}
