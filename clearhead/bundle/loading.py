"""Loading: a folder, a GGUF file or a hub id in; a bundle out, with every tensor accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from .. import weights
from ..errors import ClearheadError, InputError, LoadError, SpecError, nearest, reason, shortened
from ..families import FAMILIES, Config, Family, of_type
from ..nn import Model, Tower, initialise
from ..readfile import read_file
from ..store import read_folder, resolve
from ..text import Tokenizer
from ..tune import layout
from ..tune import quantize as rounded
from .bundle import Bundle
from .edits import edited, given, written
from .making import EXTRA, added, spec_of
from .report import Report

# Small files beside the weights that mean something to others: the recipe of sentence-transformers.
CARRIED = (
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)

# Keys of config.json that say nothing about the architecture.
PLUMBING = {
    "model_type", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache",
    "_name_or_path",
}  # fmt: skip

DRAWN = 2**24  # numbers that a small model may get on top of what its file holds
# What Python and torch raise for numbers that do not go together.
UNBUILDABLE = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def load(
    name: str | Path,
    *,
    dtype: torch.dtype | str | None = None,
    device: str | None = None,
    quantize: str | None = None,
    edit: Mapping[str, Any] | None = None,
    allow_missing: Sequence[str] = (),
    seed: int = 0,
) -> Bundle:
    """A checkpoint as a bundle, ready to compute. A local path never touches the network.

    `dtype` None keeps what is stored. `quantize="int8"` gives a quarter of the memory and a faster answer,
    "int8-fine" one that is as good as before; such a bundle computes in float32 and can be neither trained
    nor saved.
    `edit` changes the spec, {"Attention.kernel": "Window(256)"}: weights stay, and what only the edited model
    has is drawn by `seed`. `allow_missing` names parameters (globs) that may start fresh, such as "head.*";
    nothing else may.
    """
    number = _dtype(dtype)
    bundle = open_mapped(name, edit=edit, allow_missing=allow_missing, seed=seed)
    if quantize is not None and number is None:
        number = torch.float32  # what is not rounded is little, and half precision is slow on many processors
    if number is not None or device is not None:
        bundle.model.to(device=device, dtype=number)
    if quantize is not None:
        bundle.model = rounded(bundle.model, to=quantize)
    layout.for_inference(bundle.model)
    return bundle


def open_mapped(
    name: str | Path,
    *,
    edit: Mapping[str, Any] | None = None,
    allow_missing: Sequence[str] = (),
    seed: int = 0,
) -> Bundle:
    """As `load`, with weights that stay in their files: to look at and to write, not to compute with."""
    path = resolve(name)
    found = _gguf(path) if path.suffix == ".gguf" else _folder(path)
    family = _family(found)
    stored, extras = _extras(found.tensors)
    tensors, bare = _prefixed(stored, family)
    edits = {**_stored_edits(found.config), **given(edit)}
    with _describing(family):
        config = _config(family, found, tensors)
        _refuse_absurd(config, len(tensors))
        task = family.task(found.config)
        plain = spec_of(family, config, task)
        spec = edited(plain, edits)
        _refuse_deep(spec, len(tensors))
        table = family.weights(config, task)
        model = spec.empty()
    loaded = weights.load_tensors(tensors, table)
    _join(loaded, extras, {name for name, _ in model.named_parameters()})
    fresh = _check(model, loaded, [*allow_missing, *(added(plain, spec) if edits else ())])
    _refuse_large(model, fresh, stored=sum(x.numel() for x in loaded.state.values()))
    _fill(model, spec, loaded.state, seed, fresh=fresh)
    return Bundle(
        spec,
        model.eval(),
        family=family,
        task=task,
        config=found.config,
        tokenizer=found.tokenizer,
        generation=found.generation,
        pooling=found.pooling,
        report=Report.of(loaded, fresh, bare=bare),
        edits=written(edits),
        files=found.files,
    )


@dataclass(frozen=True)
class _Found:
    """What a path holds, whatever kind of file it was."""

    config: dict[str, Any]
    tensors: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    generation: dict[str, Any] = field(default_factory=dict)
    pooling: dict[str, Any] | None = None
    files: dict[str, bytes] = field(default_factory=dict)


def _folder(path: Path) -> _Found:
    found = read_folder(path)
    files = {name: read_file(path / name) for name in CARRIED if (path / name).exists()}
    tokenizer = Tokenizer.read(path)
    return _Found(found.config, found.tensors, tokenizer, found.generation, found.pooling, files)


def _gguf(path: Path) -> _Found:
    from ..store.gguf import read_gguf  # its library is an extra

    return _Found(*read_gguf(path))


def _family(found: _Found) -> Family:
    kind = found.config.get("model_type")
    if not isinstance(kind, str):
        raise LoadError("config.json has no model_type; expected one such as 'bert'")
    try:
        return of_type(kind)
    except SpecError as error:
        raise LoadError(f"{error} {_closest_family(found.config)}") from None


def _closest_family(config: dict[str, Any]) -> str:
    """The family whose keys are most like these, and where they differ: a start for adding the new one."""
    own = set(config) - PLUMBING
    like = max(
        FAMILIES.values(),
        key=lambda family: len(own & set(family.defaults)) / len(own | set(family.defaults)),
    )
    new, gone = sorted(own - set(like.defaults)), sorted(set(like.defaults) - own)
    line = f"By its keys it is most like {like.title}"
    line += f"; new to that: {_some(new)}" if new else ""
    return line + (f"; not there: {_some(gone)}" if gone else "")


def _join(loaded: weights.Loaded, extras: weights.StateDict, wanted: set[str]) -> None:
    """Extras that this model has are used; those of a choice that was edited away are kept, to be written."""
    for name, x in extras.items():
        if name in wanted:
            loaded.state[name] = x
            loaded.used.append(EXTRA + name)
        else:
            loaded.kept[EXTRA + name], loaded.reasons[EXTRA + name] = x, "of a choice that was edited away"


def _prefixed(tensors: Mapping[str, Tensor], family: Family) -> tuple[Mapping[str, Tensor], bool]:
    """Files of base models leave the family's prefix out of every name; here it is put back."""
    if not family.prefix or any(name.startswith(family.prefix) for name in tensors):
        return tensors, False
    return {family.prefix + name: tensors[name] for name in tensors}, True


@contextmanager
def _describing(family: Family) -> Iterator[None]:
    """Types and bounds of single keys are checked by families/schema.py; what is left are keys that do not go
    together (a width that no head divides), and torch's own limits on sizes."""
    try:
        yield
    except ClearheadError:
        raise
    except UNBUILDABLE as error:
        raise LoadError(
            f"config.json does not describe a {family.title} model that can be built "
            f"({type(error).__name__}: {reason(error)[:120]}); compare it with the one the model came with"
        ) from error


def _config(family: Family, found: _Found, tensors: Mapping[str, Tensor]) -> Config:
    try:
        return family.config(found.config, stored=tensors)
    except SpecError as error:
        raise LoadError(f"config.json: {error}") from None


def _refuse_absurd(config: Config, stored: int) -> None:
    """Numbers and lists of layers that no file of so many tensors can have, before they are made use of."""
    most = _most_layers(stored)
    for key, value in config.items():
        count = len(value) if isinstance(value, list) else value if "layer" in key else 0
        if isinstance(count, int) and count > most:
            raise LoadError(f"config.json says {key} is {count:,}, but the weights hold {stored} tensors")


def _refuse_deep(spec: Model, stored: int) -> None:
    """Edits, too, can ask for layers without end."""
    for node in spec.nodes():
        if isinstance(node, Tower) and node.depth > _most_layers(stored):
            raise LoadError(f"{node.depth:,} layers are asked for, but the weights hold {stored} tensors")


def _refuse_large(model: nn.Module, fresh: Sequence[str], stored: int) -> None:
    """Weights that are in no file are drawn: a few words of an edit could ask for a hundred gigabytes."""
    drawn = sum(model.get_parameter(name).numel() for name in fresh)
    if drawn > max(DRAWN, stored):
        raise LoadError(
            f"{drawn:,} numbers would have to be drawn, for {shortened(', '.join(fresh), 80)}; "
            f"the file holds {stored:,}: make what the edit adds smaller"
        )


def _most_layers(stored: int) -> int:
    """Layers may share their weights, or have none that are stored; but not by the thousand."""
    return 4 * stored + 64


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    if not isinstance(dtype, str):
        return dtype
    known = {"float32", "float16", "bfloat16", "float64"}
    if dtype not in known:
        raise InputError(f"dtype is {dtype!r}; {nearest(dtype, known)}")
    return cast(torch.dtype, getattr(torch, dtype))


def _stored_edits(config: Mapping[str, Any]) -> dict[str, str]:
    """What `save` wrote of a model that is not as its family builds it: data, for the same small parser."""
    ours = config.get("clearhead", {})
    edits = ours.get("edit", {}) if isinstance(ours, dict) else None
    if not isinstance(edits, dict) or not all(isinstance(value, str) for value in edits.values()):
        raise LoadError('config.json: "clearhead" is not {"edit": {"Kind.field": "value"}}')
    return edits


def _extras(tensors: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], weights.StateDict]:
    """Theirs, and those that only an edited model has, which stand under names of ours."""
    own = [name for name in tensors if name.startswith(EXTRA)]
    if not own:
        return tensors, {}
    rest = {name: tensors[name] for name in tensors if not name.startswith(EXTRA)}
    return rest, {name.removeprefix(EXTRA): tensors[name] for name in own}


def _check(model: nn.Module, loaded: weights.Loaded, allowed: Sequence[str]) -> tuple[str, ...]:
    """Every tensor of theirs known, every one of ours given in its shape; or one error with the rest."""
    wanted = {name: tuple(p.shape) for name, p in model.named_parameters()}
    given = {name: tuple(x.shape) for name, x in loaded.state.items()}
    missing = [name for name in wanted if name not in given]
    fresh = tuple(name for name in missing if any(fnmatchcase(name, glob) for glob in allowed))
    wrong = [
        f"{n} {given[n]}, config says {wanted[n]}" for n in wanted if n in given and given[n] != wanted[n]
    ]
    rows = {
        "unknown": [*loaded.unknown, *(name for name in given if name not in wanted)],
        "missing": [name for name in missing if name not in fresh],
        "of another shape": wrong,
    }
    bad = {what: names for what, names in rows.items() if names}
    if bad:
        line = "; ".join(f"{len(n)} {what}: {_some(n)}" for what, n in bad.items())
        hint = ". Missing ones may start fresh by name: allow_missing=['head.*']" if "missing" in bad else ""
        raise LoadError(f"the checkpoint does not fit its config: {line}{hint}")
    return fresh


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f", and {len(names) - 4} more" if len(names) > 4 else "")


def _fill(
    model: nn.Module, spec: Model, state: weights.StateDict, seed: int, *, fresh: Sequence[str]
) -> None:
    """Give the empty model its tensors, without copying them; what is allowed to be missing is drawn."""
    if fresh:
        model.to_empty(device="cpu")
        initialise(model, spec.init, seed)
        dtype = next((x.dtype for x in state.values() if x.is_floating_point()), torch.float32)
        drawn = {name: model.get_parameter(name).detach().to(dtype) for name in fresh}
        state = {**state, **drawn}
    model.load_state_dict(state, strict=False, assign=True)
    model.requires_grad_()  # a stored tensor does not know that it will be trained
