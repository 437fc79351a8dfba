"""Which format an adapter has: a tuned model in, the content of its folder out; and back."""

from __future__ import annotations

from ..errors import LoadError, UnsupportedError, quoted
from ..nn import TransformerModel
from ..weights import StateDict
from .adapterhub import hub_parameters, hub_tuning
from .files import AdapterFiles, own_format
from .names import ModelNames
from .peft import kept_tensors, read_parameters, read_saved, read_tuning, with_kept, write_peft
from .tuning import AttachedTuning, Tuning


def write_adapter(
    model: TransformerModel,
    attached: AttachedTuning,
    names: ModelNames,
    task_type: str | None,
    kept: AdapterFiles | None = None,
) -> AdapterFiles:
    """As PEFT stores it, with what was kept of a folder of PEFT; or in our own format where PEFT has none."""
    try:
        files = write_peft(model, attached, names, task_type)
    except UnsupportedError as error:
        return own_format(model, attached.trained, type(attached.value).__name__, str(error))
    return files if kept is None else with_kept(files, kept)


def adapter_tuning(files: AdapterFiles, names: ModelNames) -> Tuning:
    """The tuning that a folder of another library holds."""
    if files.is_own:
        raise LoadError("the adapter has no clearhead.json, which says what it is; copy it, too")
    return hub_tuning(files, names) if files.is_of_adapters else read_tuning(files, names)


def saved_parameters(files: AdapterFiles, names: ModelNames, model: TransformerModel) -> StateDict:
    """The parameters of the model itself that the adapter replaces, such as those of a head."""
    if files.is_own:
        known = set(names.parameters)
        return {name: files.tensors[name] for name in files.tensors if name in known}
    if files.is_of_adapters:
        return {}
    return read_saved(files, names, model)


def kept_files(files: AdapterFiles, names: ModelNames) -> AdapterFiles | None:
    """What is written back as it was: the config of PEFT, and tensors that the model here does not use."""
    if files.is_own or files.is_of_adapters:
        return None
    return AdapterFiles(files.config, kept_tensors(files, names))


def adapter_state(
    files: AdapterFiles, model: TransformerModel, attached: AttachedTuning, names: ModelNames
) -> StateDict:
    """The parameters of a tuned model, by their names here; each that learns is among them."""
    if files.is_own:
        state = dict(files.tensors)
    elif files.is_of_adapters:
        state = hub_parameters(files, names)
    else:
        state = read_parameters(files, model, attached, names)
    own = dict(model.named_parameters(remove_duplicate=False))
    missing = [name for name in attached.trained if name not in state]
    unknown = [name for name in state if name not in own]
    if missing or unknown:
        which = f"lacks {missing[0]}" if missing else f"has {unknown[0]}, which this model does not have"
        raise LoadError(f"the adapter {which}; it is of another base, or its file is damaged")
    for name, x in state.items():
        if x.shape != own[name].shape:
            shapes = f"{tuple(x.shape)}, and this model {tuple(own[name].shape)}"
            raise LoadError(f"the adapter has {quoted(name)} of shape {shapes}; it is of another base")
    return state
