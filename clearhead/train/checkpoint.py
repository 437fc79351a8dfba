"""Checkpoints: a run between two steps in, a folder out that others open as a model, and the way back."""

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
from ..bundle import Bundle, save
from ..bundle.saving import saved_weights
from ..errors import ClearheadError, LoadError, SpecError, TrainError, one_line, quoted, reason
from ..spec import Spec
from ..store.jsonfile import read_object
from ..store.manifest import seal
from ..store.shards import is_weights
from ..store.tensors import Tensors
from ..weights import State as Weights
from .commit import commit, name_of, writing
from .state import State

NUMBERS, TENSORS = "state.json", "state.safetensors"


def write_model(bundle: Bundle, folder: Path) -> None:
    """A Hugging Face folder; where no family is known, the same with the spec in place of their config."""
    if bundle.family is not None:
        save(bundle, folder)
        return
    store.write(
        folder,
        config={"model_type": "clearhead", "spec": bundle.spec.to_dict()},
        tensors={name: p.detach() for name, p in bundle.model.named_parameters()},
        generation=bundle.generation or None,
        files={**bundle.files, **(bundle.tokenizer.files if bundle.tokenizer else {})},
    )


def publish_model(bundle: Bundle, folder: Path, step: int) -> None:
    """The folder of a run becomes the model, with a manifest of the model's files alone."""
    write_model(bundle, folder)
    names = {"config.json", *bundle.files, *(bundle.tokenizer.files if bundle.tokenizer else ())}
    names |= {"generation_config.json"} if bundle.generation else set()
    with writing(folder):
        seal(folder, names | {name for name in os.listdir(folder) if is_weights(name)}, step)


def write_checkpoint(
    folder: Path, bundle: Bundle, state: State, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> Path:
    """`facts` are what the run was made by; they stand in state.json beside how far it is."""

    def fill(aside: Path) -> None:
        write_model(bundle, aside)
        save_file({name: x.detach().cpu() for name, x in tensors.items()}, aside / TENSORS)
        shutil.copymode(aside / "config.json", aside / TENSORS)  # the library lets nobody but the owner read
        numbers = {"format": 1, "state": state.to_dict(), **facts}
        (aside / NUMBERS).write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", "utf-8")

    return commit(folder, state.step, fill)


def read_numbers(checkpoint: Path) -> tuple[State, dict[str, Any]]:
    """How far a run was, and what it was made by."""
    numbers = read_object(checkpoint / NUMBERS)
    if numbers.get("format") != 1 or not isinstance(numbers.get("state"), dict):
        message = f"{checkpoint / NUMBERS} has format {quoted(numbers.get('format'))}; expected 1"
        raise LoadError(one_line(f"{message}: it is of another version"))
    state = State.from_dict(numbers["state"])
    if checkpoint.name != name_of(state.step):
        raise LoadError(f"{checkpoint / NUMBERS} is of step {state.step}; expected that of its folder")
    return state, numbers


def read_tensors(checkpoint: Path, prefix: str) -> Weights:
    """`optimizer.` or `ema.`: what stands under it, without it."""
    stored = Tensors([checkpoint / TENSORS])
    return {name.removeprefix(prefix): stored[name] for name in stored if name.startswith(prefix)}


def read_weights(bundle: Bundle, checkpoint: Path) -> Weights:
    """The weights of a checkpoint that this bundle wrote, under our names."""
    tensors = store.read(checkpoint).tensors
    try:
        return saved_weights(bundle, tensors)
    except ClearheadError:
        raise
    except (ValueError, RuntimeError, IndexError) as error:  # shapes that cannot be taken apart or transposed
        raise LoadError(f"{checkpoint} holds weights of another model: {reason(error)}") from None


def refuse_other(checkpoint: Path, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """A run goes on under the facts it began with; the first that differs is named."""
    here = _flat(ours)
    try:
        there = _flat({key: _today(theirs.get(key), ours[key]) for key in ours})
    except (TypeError, AttributeError, RecursionError):  # values of kinds that no version ever wrote
        raise LoadError(f"{checkpoint / NUMBERS} does not say what the run was made by") from None
    for key in [*here, *there]:
        if here.get(key) != there.get(key):
            said = f"{key} is {quoted(here.get(key))} here and {quoted(there.get(key))} there"
            message = f"{checkpoint} was made by another config: {said}"
            raise TrainError(one_line(f"{message}; give the same settings, or choose another folder"))


def _today(value: Any, ours: Any) -> Any:
    """A spec of an older version with the fields that have come since, at their defaults."""
    if not isinstance(value, dict) or "kind" not in value:
        return value
    try:
        made = Spec.from_dict(value).to_dict()
    except SpecError:  # it says something that is no longer known: the comparison will name it
        return value
    return {key: item for key, item in made.items() if key in value or key in ours}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """A tree of settings as one level of dotted names."""
    if isinstance(value, Mapping):
        parts = [(f"{name}.{key}" if name else str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{name}.{i}", item) for i, item in enumerate(value)]
    else:
        return {name: value}
    return {key: leaf for part, item in parts for key, leaf in _flat(item, part).items()}
