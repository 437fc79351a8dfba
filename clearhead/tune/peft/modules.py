"""Modules that PEFT trains whole (`modules_to_save`), such as a classifier: our parameters in, theirs out."""

from __future__ import annotations

from ...errors import LoadError, UnsupportedError, quoted
from ...nn import TransformerModel
from ...weights import StateDict
from ..files import AdapterFiles
from ..lora import Lora
from ..names import ModelNames
from ..tuning import AttachedTuning
from .layout import is_of_adapter, model_name, short_names, unused_tensors

# What PEFT adds to modules_to_save by itself, by the kind of the model.
SAVED_ANYWAY = {
    "SEQ_CLS": ["classifier", "score"],
    "TOKEN_CLS": ["classifier", "score"],
    "QUESTION_ANS": ["qa_outputs"],
}


def saved_modules(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> tuple[StateDict, list[str]]:
    """The modules in which some parameter of the model itself learns: their tensors, and their names."""
    anyway = SAVED_ANYWAY.get(task_type or "", [])
    own = set(names.parameters)
    learned = [name for name in attached.trained if name in own]
    if isinstance(attached.value, Lora) and attached.value.bias != "none":
        learned = [name for name in learned if not name.endswith("bias")]  # these are in the adapter
    parts = {name for name, ours in names.tensors.items() if set(ours) & set(learned)}
    modules = {name.rpartition(".")[0] for name in parts}
    inside = [n for n in names.tensors if any(n == m or n.startswith(f"{m}.") for m in modules)]
    needed = {ours for name in inside for ours in names.tensors[name]}
    if left := set(learned) - needed:
        raise UnsupportedError(f"{min(left)} is in no module of transformers' class")
    exported = names.export(dict(model.named_parameters()), needed)
    listed = [m for m in sorted(modules) if not any(part in m.split(".") for part in anyway)]
    every = [name.rpartition(".")[0] for name in names.tensors]
    short = short_names(listed, every) if listed else []
    return {name: x.detach() for name, x in exported.items()}, [*short, *anyway]


def read_modules(files: AdapterFiles, names: ModelNames) -> StateDict:
    """The parameters of the model itself that an adapter replaces, by their names here."""
    unused = unused_tensors(files, names)
    rest = {
        model_name(name): files.tensors[name]
        for name in files.tensors
        if not is_of_adapter(name) and name not in unused
    }
    own, unknown = names.load(rest)
    if unknown:
        raise LoadError(
            f"the adapter has {quoted(unknown[0])}, which this model does not have; it is of another base"
        )
    return own
