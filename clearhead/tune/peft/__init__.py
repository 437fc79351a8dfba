"""PEFT's folders: adapter_config.json and its tensors in, a tuning and our parameters out; and back.

One module for each method. The formats are those of PEFT 0.21.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import LoadError, UnsupportedError, quoted
from ...nn import TransformerModel
from ...weights import StateDict
from ..files import AdapterFiles
from ..ia3 import IA3
from ..lora import Lora
from ..names import ModelNames
from ..tuning import AttachedTuning, Tuning
from ..virtual import Prefix, Prompt
from . import ia3, lora, virtual
from .checks import check_complete, check_peft_config, check_tensors
from .kept import kept_tensors, with_kept
from .layout import LAYER_PREFIX, PROMPT_PREFIX, is_of_adapter, short_names, unused_tensors
from .modules import SAVED_ANYWAY, read_modules, saved_modules

__all__ = [
    "kept_tensors", "read_parameters", "read_saved", "read_tuning", "short_names", "with_kept", "write_peft",
]  # fmt: skip


@dataclass(frozen=True)
class PeftMethod:
    """How one method of PEFT is stored."""

    value: type[Tuning]
    config: Mapping[str, Any]  # the keys of its config, with their defaults
    write: Callable[[TransformerModel, AttachedTuning, ModelNames, str | None], AdapterFiles]
    tuning: Callable[[AdapterFiles, ModelNames], Tuning]
    state: Callable[[AdapterFiles, TransformerModel, AttachedTuning, ModelNames], StateDict]


PEFT_METHODS = {
    "LORA": PeftMethod(Lora, lora.LORA_CONFIG, lora.write_lora, lora.lora_tuning, lora.lora_state),
    "IA3": PeftMethod(IA3, ia3.IA3_CONFIG, ia3.write_ia3, ia3.ia3_tuning, ia3.ia3_state),
    "PREFIX_TUNING": PeftMethod(
        Prefix, virtual.PREFIX_CONFIG, virtual.write_prefix, virtual.prefix_tuning, virtual.prefix_state
    ),
    "PROMPT_TUNING": PeftMethod(
        Prompt, virtual.PROMPT_CONFIG, virtual.write_prompt, virtual.prompt_tuning, virtual.prompt_state
    ),
}


def write_peft(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> AdapterFiles:
    """Raises `UnsupportedError`, with the reason, for what PEFT has no format for."""
    method = next((m for m in PEFT_METHODS.values() if isinstance(attached.value, m.value)), None)
    if method is None or not names.table:
        raise UnsupportedError(f"PEFT has no format for {type(attached.value).__name__}")
    files = method.write(model, attached, names, task_type)
    saved = saved_modules(model, attached, names, task_type)
    prompt = method.value in (Prefix, Prompt)
    anyway = SAVED_ANYWAY.get(task_type or "", []) if prompt else []  # which PEFT then lists twice
    prefix = PROMPT_PREFIX if prompt else LAYER_PREFIX
    stored = {prefix + name: x for name, x in saved.tensors.items()}
    config = files.config | {"task_type": task_type, "modules_to_save": [*saved.names, *anyway] or None}
    if saved.tied:
        config["ensure_weight_tying"] = True
    return AdapterFiles(config, {**files.tensors, **stored})


def _method(files: AdapterFiles) -> PeftMethod:
    kind = files.config.get("peft_type")
    method = PEFT_METHODS.get(kind) if isinstance(kind, str) else None
    if method is None:
        known = ", ".join(PEFT_METHODS)
        raise LoadError(f"the adapter is PEFT's {quoted(kind)}, which is not supported; supported: {known}")
    return method


def read_tuning(files: AdapterFiles, names: ModelNames) -> Tuning:
    """The value that describes an adapter of PEFT."""
    _check(files)
    tuning = _method(files).tuning(files, names)
    check_complete(files, names)
    return tuning


def read_saved(files: AdapterFiles, names: ModelNames, model: TransformerModel) -> StateDict:
    """The parameters of the model itself that an adapter of PEFT replaces."""
    _check(files)
    return read_modules(files, names, model)


def _check(files: AdapterFiles) -> None:
    check_peft_config(files.config, _method(files).config)
    check_tensors(files)


def read_parameters(
    files: AdapterFiles, model: TransformerModel, attached: AttachedTuning, names: ModelNames
) -> StateDict:
    """The parameters of a tuned model by their names here. Every tensor must belong to one."""
    found = _method(files).state(files, model, attached, names)
    known = {path for path, matrix in names.matrices.items() if set(matrix.parts) & set(attached.layers)}
    for name in files.tensors:
        path = name.removeprefix(LAYER_PREFIX).rpartition(".lora_")[0] or name.removeprefix(LAYER_PREFIX)
        stray = is_of_adapter(name) and path.removesuffix(".ia3_l") not in known
        if stray and name != "prompt_embeddings" and name not in unused_tensors(files, names):
            raise LoadError(f"the adapter has {quoted(name)}, and this model has no layer of that name")
    return found | read_modules(files, names, model)
