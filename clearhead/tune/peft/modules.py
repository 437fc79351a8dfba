"""Modules that PEFT trains whole (`modules_to_save`), such as a classifier: our parameters in, theirs out.

PEFT trains a copy of each. A table whose copy is trained is no longer tied to the output, unless the config
says `ensure_weight_tying`: then every name of the table is written, and stays one tensor.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from ...errors import LoadError, UnsupportedError, quoted
from ...nn import TransformerModel
from ...weights import StateDict
from ..files import AdapterFiles
from ..lora import Lora
from ..names import ModelNames
from ..tuning import AttachedTuning
from .layout import is_of_adapter, model_name, short_names, unused_tensors

# What PEFT adds to modules_to_save by itself, by the kind of the model; it then asks for these tensors.
SAVED_ANYWAY = {
    "SEQ_CLS": ["classifier", "score"],
    "TOKEN_CLS": ["classifier", "score"],
    "QUESTION_ANS": ["qa_outputs"],
}
# PEFT ties what is saved only if one of the modules has one of these names.
TIED_BY_PEFT = ("embed_tokens", "lm_head")


@dataclass(frozen=True)
class SavedModules:
    tensors: StateDict
    names: list[str]  # of the modules, as modules_to_save has them
    tied: bool  # whether a table among them stays tied


def saved_modules(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> SavedModules:
    """The modules in which some parameter of the model itself learns: their tensors, and their names."""
    anyway = SAVED_ANYWAY.get(task_type or "", [])
    always = [path for path in names.paths if path.endswith(tuple(anyway))] if anyway else []
    own, value = set(names.parameters), attached.value
    learned = [name for name in attached.trained if name in own]
    if isinstance(value, Lora) and value.bias != "none":
        learned = [name for name in learned if not name.endswith("bias")]  # these are in the adapter
    parts = {name for name, ours in names.tensors.items() if set(ours) & set(learned)}
    modules = {name.rpartition(".")[0] for name in parts} | set(always)
    loose = {each for name in learned for each in names.tied.get(name, ()) if not _is_in(each, modules)}
    if loose:
        _check_tying(loose, value)
        modules |= {name.rpartition(".")[0] for name in loose}
    needed = {ours for name, each in names.tensors.items() if _is_in(name, modules) for ours in each}
    if left := set(learned) - needed:
        raise UnsupportedError(f"{min(left)} is in no module of transformers' class")
    parameters = dict(model.named_parameters())
    tensors = names.export(parameters, needed)
    for ours, others in names.tied.items():
        tensors |= {name: parameters[ours] for name in others if _is_in(name, modules)}
    listed = [path for path in sorted(modules) if not _is_in(path, always)]
    short = short_names(listed, names.paths, inside_words=True) if listed else []
    return SavedModules({name: x.detach() for name, x in tensors.items()}, [*short, *anyway], bool(loose))


def _is_in(name: str, modules: Collection[str]) -> bool:
    """Whether it is one of these modules, or in one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _check_tying(tied: set[str], value: object) -> None:
    name = min(tied)
    if not isinstance(value, Lora):
        raise UnsupportedError(f"PEFT keeps {name} tied to a table that learns beside LoRA alone")
    if len(tied) > 1 or name.split(".")[-2] not in TIED_BY_PEFT:
        raise UnsupportedError(f"PEFT does not keep {name} tied to a table that learns")


def read_modules(files: AdapterFiles, names: ModelNames, model: TransformerModel) -> StateDict:
    """The parameters of the model itself that an adapter replaces, by their names here."""
    unused = unused_tensors(files, names)
    rest = {
        model_name(name): files.tensors[name]
        for name in files.tensors
        if not is_of_adapter(name) and name not in unused
    }
    for ours, others in names.tied.items():
        every = [*(name for name, each in names.tensors.items() if ours in each), *others]
        stored = [name for name in every if name in rest]
        apart = [name for name in every if name not in rest]
        if not stored or _stays_tied(files, stored):
            continue
        before = model.get_parameter(ours)
        if apart and all(_equal(rest[name], before) for name in stored):  # copied, and not trained
            rest = {name: x for name, x in rest.items() if name not in stored}
        elif apart or not all(_equal(rest[name], rest[stored[0]]) for name in stored):
            raise LoadError(
                f"the adapter replaces {stored[0]} alone, which is one tensor with "
                f"{(*apart, *stored[1:])[0]} in this model; train it with ensure_weight_tying=True in "
                f"PEFT, or over a base with tie_word_embeddings false"
            )
    own, unknown = names.load(rest)
    if unknown:
        raise LoadError(
            f"the adapter has {quoted(unknown[0])}, which this model does not have; it is of another base"
        )
    return own


def _stays_tied(files: AdapterFiles, stored: list[str]) -> bool:
    """Whether these are one tensor in PEFT, too: tied on purpose, or in no module that it copies."""
    saved = tuple(files.config.get("modules_to_save") or ())
    modules = {name.rsplit(".", i)[0] for name in stored for i in range(1, name.count(".") + 1)}
    if not any(path.endswith(saved) for path in modules):
        return True
    named = any(each.split(".")[-1] in TIED_BY_PEFT for each in saved)
    return bool(files.config.get("ensure_weight_tying")) and named


def _equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.shape == two.shape and torch.equal(one.to(two), two)
