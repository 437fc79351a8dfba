"""Adapters of bundles on disk: a tuned bundle in, a folder out that PEFT opens; and back, over its base.

The base is found by what is given, by the name in the folder, or beside it, and is checked: an adapter
computes something else over other weights. Nothing is asked of the network.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from ..engine import stored_parameters
from ..errors import LoadError, one_line, quoted
from ..families import HeadKind
from ..spec import Spec
from ..store import (
    ADAPTER_CONFIG,
    GENERATION_CONFIG,
    AdapterFolder,
    check_info,
    is_adapter_folder,
    read_adapter_folder,
    resolve,
    resolve_offline,
    write_adapter_folder,
)
from ..tune import (
    AdapterFiles,
    ModelNames,
    Tuning,
    adapter_state,
    adapter_tuning,
    attach_tuning,
    kept_files,
    saved_parameters,
    write_adapter,
)
from ..weights import StateDict
from .parts import BundleParts
from .tuning import model_names, new_parameters, tuned_bundle

_log = logging.getLogger("clearhead.bundle")
B = TypeVar("B", bound=BundleParts)
SAMPLED = 8  # numbers of a dimension that a fingerprint looks at, about
# Keys of config.json that an adapter may bring along: those of its head.
HEAD_KEYS = ("architectures", "id2label", "label2id", "problem_type", "pad_token_id")
TASK_TYPES: dict[HeadKind, str] = {
    "labels": "SEQ_CLS", "tags": "TOKEN_CLS", "span": "QUESTION_ANS", "hidden": "FEATURE_EXTRACTION",
}  # fmt: skip


def is_adapter(bundle: BundleParts) -> bool:
    """Whether the bundle is stored as an adapter, apart from its base."""
    return bundle.tuning is not None and not bundle.tuning.value.is_whole


def save_adapter(bundle: BundleParts, folder: str | Path) -> None:
    """Write the adapter of a tuned bundle: a folder of PEFT, where it has the method."""
    assert bundle.tuning is not None and bundle.base is not None
    files = adapter_files(bundle)
    name, where = base_name(bundle.base), os.path.realpath(folder)
    stored = _name_in_peft(bundle, name)
    config = files.config | ({} if stored is None else {"base_model_name_or_path": stored})
    info = {
        "format": 1,
        "tuning": bundle.tuning.value.to_dict(),
        "task": bundle.task,
        "base": {
            "name": name,
            "relative": os.path.relpath(name, where) if name and os.path.isabs(name) else None,
            "fingerprint": fingerprint(bundle.base),
        },
        "config": {key: bundle.config[key] for key in HEAD_KEYS if key in bundle.config},
        "edit": bundle.edits,
    }
    texts = dict(bundle.tokenizer.files) if bundle.tokenizer else {}
    write_adapter_folder(
        folder, config=config, tensors=files.tensors, info=info, files={**texts, **_own(bundle)}
    )


def _own(bundle: BundleParts) -> dict[str, bytes]:
    """Files of the bundle that its base does not have, such as the pooling of sentence vectors."""
    assert bundle.base is not None
    known = bundle.base.files
    own = {name: data for name, data in bundle.files.items() if known.get(name) != data}
    if bundle.generation != bundle.base.generation:
        own[GENERATION_CONFIG] = (json.dumps(bundle.generation, indent=2, ensure_ascii=False) + "\n").encode()
    return own


def adapter_files(bundle: BundleParts) -> AdapterFiles:
    """The content of the folder of a tuned bundle. A PEFT adapter that was read keeps its config."""
    assert bundle.tuning is not None
    return write_adapter(
        bundle.model, bundle.tuning, model_names(bundle), task_type(bundle), bundle.adapter_kept
    )


def is_peft(bundle: BundleParts) -> bool:
    """Whether PEFT opens the folder that the bundle is saved as."""
    return is_adapter(bundle) and not adapter_files(bundle).is_own and not bundle.edits


def why_not_peft(bundle: BundleParts) -> str:
    """Why the adapter is stored in our own format; nothing where PEFT has a format for it."""
    return adapter_files(bundle).why_own if is_adapter(bundle) else ""


def task_type(bundle: BundleParts) -> str | None:
    """PEFT's name of what a model is for; None for heads that it has no name for."""
    if bundle.spec.is_encoder_decoder and bundle.task == "tokens":
        return "SEQ_2_SEQ_LM"
    if bundle.spec.generates:
        return "CAUSAL_LM"
    return TASK_TYPES.get(bundle.task)


def base_name(base: BundleParts) -> str | None:
    """What the base was loaded from: a hub id as it was given, or the full name of a folder or file."""
    name = base.loaded_from
    return None if name is None else str(Path(name).resolve()) if Path(name).exists() else name


def _name_in_peft(bundle: BundleParts, name: str | None) -> str | None:
    """The name of the base for PEFT: as the folder of PEFT had it, if it still names this base."""
    stored = bundle.adapter_kept.config.get("base_model_name_or_path") if bundle.adapter_kept else None
    if isinstance(stored, str) and stored and name is not None:
        found, own = resolve_offline(stored), resolve_offline(name)
        if found is not None and own is not None and found.resolve() == own.resolve():
            return stored
    return name


def find_base(adapter: AdapterFolder) -> Path:
    """The base of an adapter, if it is on this machine."""
    named = adapter.info.get("base") or {}
    stored = "model_name" if _files(adapter).is_of_adapters else "base_model_name_or_path"
    name, relative = named.get("name") or adapter.config.get(stored), named.get("relative")
    tried = []
    beside = adapter.folder.parent / Path(str(name)).name if name else None
    for candidate in (name, relative and adapter.folder / str(relative), beside):
        if candidate and not isinstance(candidate, str | Path):
            raise LoadError(f"the base of the adapter is {quoted(candidate)}; expected the name of a model")
        found = resolve_offline(candidate) if candidate else None
        if found is not None and not is_adapter_folder(found):
            return found
        tried += [str(candidate)] if candidate else []
    what = (
        f"its base {quoted(tried[0])} is not here" if tried else "it does not say which model it belongs to"
    )
    raise LoadError(
        one_line(
            f"{adapter.folder} is an adapter, and {what}; give the base: load(BASE, adapter=...), --adapter"
        )
    )


def base_of_adapter(name: str | Path) -> Path:
    """The base of the adapter in a folder; of a model, the model itself."""
    path = resolve(name)
    return find_base(read_adapter_folder(path)) if is_adapter_folder(path) else path


def head_of(adapter: AdapterFolder) -> tuple[HeadKind | None, list[str] | None]:
    """The head that the adapter was trained with, and the names of its labels; None: that of the base."""
    info = adapter.info
    if info:
        names = info.get("config", {}).get("id2label")
        labels = [names[key] for key in sorted(names, key=int)] if isinstance(names, dict) else None
        return info.get("task"), labels if info.get("task") in ("labels", "tags") else None
    kinds: dict[str, HeadKind] = {value: key for key, value in TASK_TYPES.items()}
    kind = kinds.get(str(adapter.config.get("task_type")))
    if kind not in ("labels", "tags"):
        return kind, None
    count = _saved_classes(adapter)
    return kind, None if count is None else [f"LABEL_{i}" for i in range(count)]


def _saved_classes(adapter: AdapterFolder) -> int | None:
    """How many classes the head in the folder has: the rows of the last layer of it."""
    shapes = {name: adapter.tensors.shape(name) for name in adapter.tensors}
    ends = ("classifier.weight", "score.weight", "out_proj.weight", "logits_proj.weight")
    return next(
        (shape[0] for name, shape in shapes.items() if name.endswith(ends) and "lora" not in name), None
    )


def adapter_weights(bundle: BundleParts, folder: Path) -> StateDict:
    """The parameters of a tuned bundle as they are in the folder of an adapter that it wrote."""
    assert bundle.tuning is not None
    files = _files(read_adapter_folder(folder))
    state = adapter_state(files, bundle.model, bundle.tuning, model_names(bundle))
    own = {name for name, _ in bundle.model.named_parameters()}  # a shared one under its first name alone
    return {name: x for name, x in state.items() if name in own}


def edit_of(adapter: AdapterFolder) -> dict[str, str]:
    """The edits of the base under which the adapter was trained, such as another attention."""
    edits = adapter.info.get("edit", {})
    if not isinstance(edits, dict) or not all(isinstance(value, str) for value in edits.values()):
        raise LoadError(f"the edits of the adapter are {quoted(edits)}; expected {{'Kind.field': 'value'}}")
    return edits


def _files(adapter: AdapterFolder) -> AdapterFiles:
    return AdapterFiles(adapter.config, adapter.tensors)


def with_adapter(bundle: B, adapter: AdapterFolder) -> B:
    """The bundle with the adapter over it."""
    files = _files(adapter)
    names = model_names(bundle)
    stored = adapter.info.get("tuning")
    tuning: object = Spec.from_dict(stored) if isinstance(stored, dict) else None
    if tuning is None:
        tuning = adapter_tuning(files, names)
    if not isinstance(tuning, Tuning):
        raise LoadError(f"the tuning of the adapter is {quoted(stored)}; expected one such as Lora")
    learn = [*new_parameters(bundle, names), *_replaced(bundle, adapter, names)]
    tuned = attach_tuning(bundle.model, tuning, names=names, learn=list(dict.fromkeys(learn)))
    state = adapter_state(files, tuned.model, tuned.tuning, names)
    with torch.no_grad():
        for name in tuned.tuning.trained:
            tuned.model.get_parameter(name).copy_(state[name])
    result = tuned_bundle(bundle, tuned)
    fresh = tuple(name for name in bundle.report.fresh if name not in state)
    result.report = replace(bundle.report, fresh=fresh)
    stored_config = adapter.info.get("config", {})
    result.config |= {key: x for key, x in stored_config.items() if key in HEAD_KEYS}
    result.generation = adapter.generation or result.generation
    result.adapter_kept = kept_files(files, names)
    if adapter.heads:
        _log.warning(
            "the head in %s (%s) is not used: only its adapter is read", adapter.folder, adapter.heads[0]
        )
    return result


def _replaced(bundle: BundleParts, adapter: AdapterFolder, names: ModelNames) -> list[str]:
    """The parameters of the base that the adapter brings along, which learn.

    Our own folders for PEFT hold the head even where it did not learn: PEFT asks for it.
    """
    found = saved_parameters(_files(adapter), names, bundle.model)
    before = dict(bundle.model.named_parameters())
    own = bool(adapter.info)
    return [n for n, x in found.items() if not (own and torch.equal(x.to(before[n]), before[n]))]


def check_base(bundle: BundleParts, adapter: AdapterFolder, *, any_base: bool) -> None:
    """Raise an error if the adapter was trained over other weights. `any_base` leaves the comparison out."""
    check_info(adapter.info)
    if _files(adapter).is_of_adapters:
        _check_sizes(bundle, adapter)
    known = (adapter.info.get("base") or {}).get("fingerprint")
    if known is None:
        _log.info("%s does not say which weights it was trained over", adapter.folder)
    elif known != fingerprint(bundle) and not any_base:
        named = (adapter.info.get("base") or {}).get("name")
        raise LoadError(
            one_line(
                f"{adapter.folder} was trained over other weights than these (over {quoted(named)} with "
                f"fingerprint {known}, this is {fingerprint(bundle)}); give its own base, or any_base=True "
                f"(--any-base)"
            )
        )


def _check_sizes(bundle: BundleParts, adapter: AdapterFolder) -> None:
    """What a folder of the library adapters says about its base: the kind of model and its width."""
    kind = bundle.config.get("model_type")
    own = {"model_type": kind, "hidden_size": next(iter(bundle.spec.towers.values())).width}
    for key, value in own.items():
        stored = adapter.config.get(key)
        if type(stored) is not type(value) or stored != value:
            raise LoadError(
                one_line(
                    f"{adapter.folder}: {key} in {ADAPTER_CONFIG} is {quoted(stored)}, and the base has "
                    f"{quoted(value)}; give the base that the adapter was trained over"
                )
            )


def fingerprint(bundle: BundleParts) -> str:
    """Equal for equal weights of the towers, whatever file they are in; heads do not count.

    Some numbers of every parameter are looked at, rounded to bfloat16, so that a base in half precision is
    the same base.
    """
    digest = hashlib.sha256()
    towers = tuple(f"{name}." for name in bundle.model.stacks)
    names = model_names(bundle)  # without the parameters that an edit of the model added
    known = {name for ours in names.tensors.values() for name in ours} or set(names.parameters)
    for name, x in sorted(stored_parameters(bundle.model).items()):
        if name.startswith(towers) and name in known:
            steps = tuple(slice(None, None, max(1, size // SAMPLED)) for size in x.shape)
            numbers = x[steps].to(torch.bfloat16).cpu().contiguous().view(torch.int16).numpy()
            digest.update(f"{name}{tuple(x.shape)}".encode() + numbers.tobytes())
    return digest.hexdigest()[:16]
