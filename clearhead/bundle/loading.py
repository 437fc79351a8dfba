"""Loading: a folder, a GGUF file or a hub id in; a bundle out, with every tensor accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import weights
from ..device import choose_device
from ..engine import layout
from ..errors import ClearheadError, InputError, LoadError, SpecError, reason, shortened
from ..families import FAMILIES, Config, Family, explain_unsupported
from ..nn import Model, Tower, check_cache_precision, initialise
from ..readfile import read_file
from ..store import (
    ADAPTER_CONFIG,
    AdapterFolder,
    FileVersion,
    is_adapter_folder,
    read_adapter_folder,
    read_folder,
    resolve,
)
from ..text import Tokenizer
from .adapters import check_base, edit_of, find_base, head_of, with_adapter
from .bundle import Bundle
from .edits import apply_edits, check_edits, edits_as_text
from .heads import change_head, without_old_head
from .preparing import prepare_bundle
from .report import Report
from .saving import saved_tensors
from .specs import EXTRA, added_parameters, removed_parameters, spec_of
from .their_arguments import as_dtype, their_arguments
from .tuning import copy_tuning

# Small files beside the weights that are kept when the bundle is saved: those of sentence-transformers.
COPIED_FILES = (
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)

WEIGHT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # of weights
MAX_NEW_NUMBERS = 2**24  # parameters that are not in the file, at most, if it holds fewer itself
# What Python and torch raise for a config whose numbers are inconsistent.
UNBUILDABLE = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def load(
    name: str | Path | Bundle,
    *,
    dtype: torch.dtype | str | None = None,
    device: str | None = None,
    precision: str | None = None,
    quantize: str | None = None,
    cache_precision: str | None = None,
    keep: bool = False,
    edit: Mapping[str, Any] | None = None,
    head: str | None = None,
    labels: Sequence[str] | None = None,
    adapter: str | Path | None = None,
    any_base: bool = False,
    allow_missing: Sequence[str] = (),
    seed: int = 0,
    **theirs: Any,
) -> Bundle:
    """Load a checkpoint as a bundle, ready for inference. A local path never accesses the network.

    `name` may be the folder of an adapter (of `ch.tune`, of PEFT or of the library adapters): its base is
    found on this machine. `adapter` is such a folder, to be put over the model `name`, which may be a bundle
    in memory: its weights are shared, and stay as they are. That these are the weights the adapter was
    trained over is checked, unless `any_base` is set.

    `dtype` None keeps the stored one. `device` is "cpu", "cuda", "cuda:1", "mps", or "auto": the best one
    that is there. `precision` prepares the model for fast inference on this CPU,
    as `Bundle.prepare` does: float32, bfloat16, int8, int8-fine or int4; `quantize` is another name for it.
    `cache_precision` stores the keys and values of generation in float32, bfloat16 or int8.
    `keep` writes quantized weights into the folder, so that loading it again in this precision is faster.
    `edit` changes the spec, {"Attention.kernel": "Window(256)"}: weights are kept, and parameters that only
    the edited model has are initialised with `seed`.
    `head="labels"` (tags, span, tokens, hidden) puts another head on, `labels=["neg", "pos"]` names its
    classes; its weights are initialised with `seed`, to be trained, and listed in `bundle.report`.
    `allow_missing` lists patterns of parameters, such as "head.*", that are initialised if the file does not
    have them; any other missing one is an error.
    `torch_dtype` and `device_map`, as transformers calls them, are understood as dtype and device.
    """
    if isinstance(name, Bundle):
        given = (dtype, device, precision, quantize, cache_precision, edit, head, labels, *theirs.values())
        if adapter is None or keep or allow_missing or any(each is not None for each in given):
            raise InputError(
                "a bundle in memory is loaded with an adapter alone: load(bundle, adapter=FOLDER)"
            )
        return _over_bundle(name, adapter, any_base=any_base, seed=seed)
    dtype, device = their_arguments(theirs, dtype, device)
    number = as_dtype(dtype)
    device = None if device is None else choose_device(device)
    if precision is not None and quantize is not None:
        raise InputError("precision and quantize are two names for one setting; give one of them")
    precision = precision or quantize
    if keep and precision is None:
        raise InputError("keep=True keeps quantized weights: give a precision as well, such as 'int8'")
    bundle, over = _open(
        name,
        adapter,
        any_base=any_base,
        edit=edit,
        head=head,
        labels=labels,
        allow_missing=allow_missing,
        seed=seed,
    )
    converted = number is not None or device is not None or not bundle.weight_files
    if number is not None or device is not None:
        bundle.model.to(device=device, dtype=number)
    if cache_precision is not None:
        bundle.model.cache_precision = check_cache_precision(cache_precision)
    if precision is None:
        layout.for_inference(bundle.model, mapped=not converted)
    if over is not None:
        bundle = with_adapter(bundle, over)
    if precision is not None:
        prepare_bundle(bundle, precision, keep=keep, just_loaded=not converted)
    return bundle


from_pretrained = load  # the name that transformers has for it


def open_mapped(
    name: str | Path,
    *,
    edit: Mapping[str, Any] | None = None,
    head: str | None = None,
    labels: Sequence[str] | None = None,
    adapter: str | Path | None = None,
    any_base: bool = False,
    allow_missing: Sequence[str] = (),
    seed: int = 0,
) -> Bundle:
    """As `load`, but weights stay memory-mapped: for inspecting and converting, not for inference."""
    bundle, over = _open(
        name,
        adapter,
        any_base=any_base,
        edit=edit,
        head=head,
        labels=labels,
        allow_missing=allow_missing,
        seed=seed,
    )
    return bundle if over is None else with_adapter(bundle, over)


def _open(
    name: str | Path,
    adapter: str | Path | None,
    *,
    any_base: bool,
    edit: Mapping[str, Any] | None,
    head: str | None,
    labels: Sequence[str] | None,
    allow_missing: Sequence[str],
    seed: int,
) -> tuple[Bundle, AdapterFolder | None]:
    """The model, with weights that stay memory-mapped, and the adapter that is to be put over it."""
    path, over = resolve(name), None
    if is_adapter_folder(path):
        if adapter is not None:
            raise InputError(f"{name} is an adapter itself; give its base, or the adapter alone")
        over = read_adapter_folder(path)
        name = path = find_base(over)
    elif adapter is not None:
        over = read_adapter_folder(_adapter_path(adapter))
    if over is not None:
        own_head, own_labels = head_of(over)
        head, labels = (own_head, own_labels) if head is None else (head, labels)
        edit = {**edit_of(over), **check_edits(edit)}
    found = _gguf(path) if path.suffix == ".gguf" else _folder(path)
    if over is not None and over.tokenizer is not None:
        found = replace(found, tokenizer=over.tokenizer)
    bundle = _assemble(found, edit=edit, head=head, labels=labels, allow_missing=allow_missing, seed=seed)
    bundle.loaded_from = str(name)
    if over is not None:
        check_base(bundle, over, any_base=any_base)
    return bundle, over


def _over_bundle(bundle: Bundle, adapter: str | Path, *, any_base: bool, seed: int) -> Bundle:
    """An adapter over a bundle in memory, whose weights are shared."""
    if bundle.tuning is not None:
        raise InputError("the bundle has an adapter already: load the other one over bundle.base")
    over = read_adapter_folder(_adapter_path(adapter))
    check_base(bundle, over, any_base=any_base)
    head, labels = head_of(over)
    asked = edit_of(over)
    if asked != bundle.edits and not any_base:
        raise InputError(
            f"the adapter was trained with edit={asked}, and this bundle has edit={bundle.edits}; load the "
            f"base with the first, or give any_base=True"
        )
    fits = head in (None, bundle.task) and (labels is None or list(bundle.labels.values()) == labels)
    base = bundle if fits else with_head(bundle, head, labels, seed=seed, share=True)
    result = with_adapter(base, over)
    if over.tokenizer is not None:
        result.tokenizer = over.tokenizer
    return result


def _adapter_path(adapter: str | Path) -> Path:
    path = resolve(adapter)
    if not is_adapter_folder(path):
        raise LoadError(f"{path} is no adapter: it has no {ADAPTER_CONFIG}, or is a model of its own")
    return path


def with_head(
    bundle: Bundle,
    head: str | None = None,
    labels: Sequence[str] | None = None,
    *,
    seed: int = 0,
    share: bool = False,
) -> Bundle:
    """A copy of a bundle in memory with another head, as `load(head=, labels=)` puts it on a checkpoint.

    The weights are copied: training the result leaves the bundle as it is. With `share` they are the same
    memory, for a result that is tuned and not trained itself. Of a tuned bundle the adapters are copied,
    and the base is shared.
    """
    if bundle.tuning is not None and isinstance(bundle.base, Bundle):
        return copy_tuning(bundle, with_head(bundle.base, head, labels, seed=seed, share=True), seed=seed)
    found = _Found(
        _config_with_edits(bundle),
        {name: x if share else x.clone() for name, x in saved_tensors(bundle).items()},
        bundle.tokenizer,
        dict(bundle.generation),
        bundle.pooling,
        dict(bundle.files),
    )
    result = _assemble(found, edit=None, head=head, labels=labels, allow_missing=(), seed=seed)
    result.model.to(next(bundle.model.parameters()).device)
    result.loaded_from = bundle.loaded_from
    layout.for_inference(result.model)
    return result


def _config_with_edits(bundle: Bundle) -> dict[str, Any]:
    return {**bundle.config, **({"clearhead": {"edit": bundle.edits}} if bundle.edits else {})}


def _assemble(
    found: _Found,
    *,
    edit: Mapping[str, Any] | None,
    head: str | None,
    labels: Sequence[str] | None,
    allow_missing: Sequence[str],
    seed: int,
) -> Bundle:
    family = _family(found)
    stored, extras = _split_extras(found.tensors)
    tensors, bare = _add_prefix(stored, family)
    edits = {**_stored_edits(found.config), **check_edits(edit)}
    with _config_errors(family):
        config = _config(family, found.config, tensors)
        old = family.weights(config, family.task(found.config))
        change = change_head(family, found.config, head, labels)
        task = change.head
        config = _config(family, change.config, tensors)
        _check_layer_counts(config, len(tensors))
        plain = spec_of(family, config, task)
        spec = apply_edits(plain, edits)
        _check_depth(spec, len(tensors))
        table = family.weights(config, task)
        model = spec.empty()
    dropped: tuple[str, ...] = ()
    if change.replaced:
        tensors, dropped = without_old_head(tensors, old, table, set(dict(model.named_parameters())))
        allow_missing = [*allow_missing, "head.*", "second.*"]
    loaded = weights.load_tensors(tensors, table)
    _check_dtypes(loaded)
    if edits:  # an attention that was replaced takes its own parameters along, such as a sink
        unused = removed_parameters(plain, spec)
        dropped += tuple(name for name in loaded.state if name in unused)
        loaded.state = {name: x for name, x in loaded.state.items() if name not in unused}
    _add_extras(loaded, extras, {name for name, _ in model.named_parameters()})
    fresh = _check(model, loaded, [*allow_missing, *(added_parameters(plain, spec) if edits else ())])
    _check_size(model, fresh, stored=sum(x.numel() for x in loaded.state.values()))
    _fill(model, spec, loaded.state, seed, fresh=fresh)
    return Bundle(
        spec,
        model.eval(),
        family=family,
        task=task,
        config=change.config,
        tokenizer=found.tokenizer,
        generation=found.generation,
        pooling=found.pooling,
        report=Report.of(loaded, fresh, dropped, bare=task in family.bare if change.replaced else bare),
        edits=edits_as_text(edits),
        files=found.files,
        weight_files=found.weight_files,
    )


@dataclass(frozen=True)
class _Found:
    """The content of a checkpoint, of either format."""

    config: dict[str, Any]
    tensors: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    generation: dict[str, Any] = field(default_factory=dict)
    pooling: dict[str, Any] | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    weight_files: tuple[FileVersion, ...] = ()


def _folder(path: Path) -> _Found:
    found = read_folder(path)
    files = {name: read_file(path / name) for name in COPIED_FILES if (path / name).exists()}
    tokenizer = Tokenizer.read(path)
    return _Found(
        found.config, found.tensors, tokenizer, found.generation, found.pooling, files, found.tensors.files
    )


def _gguf(path: Path) -> _Found:
    from ..store.gguf import read_gguf  # its library is an extra

    return _Found(*read_gguf(path))


def _family(found: _Found) -> Family:
    kind = found.config.get("model_type")
    if not isinstance(kind, str):
        raise LoadError("config.json has no model_type; expected one such as 'bert'")
    for family in FAMILIES.values():
        if family.key == kind:
            return family
    raise LoadError(explain_unsupported(found.config, FAMILIES.values()))


def _add_extras(loaded: weights.Loaded, extras: weights.StateDict, wanted: set[str]) -> None:
    """Use the extra tensors that this model has; keep the others, to write them back on saving."""
    for name, x in extras.items():
        if name in wanted:
            loaded.state[name] = x
            loaded.used.append(EXTRA + name)
        else:
            loaded.kept[EXTRA + name], loaded.reasons[EXTRA + name] = x, "of an edit that was undone"


def _add_prefix(tensors: Mapping[str, Tensor], family: Family) -> tuple[Mapping[str, Tensor], bool]:
    """Add the family's prefix to the names of a base model, which are stored without it."""
    if any(name.startswith(tuple(family.head_prefix.values())) for name in tensors):
        tensors = {family.table_name(name): tensors[name] for name in tensors}
    if not family.prefix or any(name.startswith(family.prefix) for name in tensors):
        return tensors, False
    return {family.prefix + name: tensors[name] for name in tensors}, True


@contextmanager
def _config_errors(family: Family) -> Iterator[None]:
    """Turn the errors of an inconsistent config into a `LoadError`.

    Types and bounds of single keys are checked by families/schema.py; here it is about keys that contradict
    each other (a width that the heads do not divide) and torch's own limits on sizes.
    """
    try:
        yield
    except ClearheadError:
        raise
    except UNBUILDABLE as error:
        raise LoadError(
            f"config.json does not describe a {family.title} model that can be built "
            f"({type(error).__name__}: {reason(error)[:120]}); compare it with the one the model came with"
        ) from error


def _config(family: Family, given: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Config:
    try:
        return family.config(given, stored=tensors)
    except SpecError as error:
        raise LoadError(f"config.json: {error}") from None


def _check_layer_counts(config: Config, stored: int) -> None:
    """Raise an error for more layers than the number of stored tensors allows, before building anything."""
    most = _max_layers(stored)
    for key, value in config.items():
        count = len(value) if isinstance(value, list) else value if "layer" in key else 0
        if isinstance(count, int) and count > most:
            raise LoadError(f"config.json says {key} is {count:,}, but the weights hold {stored} tensors")


def _check_depth(spec: Model, stored: int) -> None:
    """The same check for the spec: an edit may have changed the depth."""
    for node in spec.nodes():
        if isinstance(node, Tower) and node.depth > _max_layers(stored):
            raise LoadError(f"{node.depth:,} layers are requested, but the weights hold {stored} tensors")


def _check_size(model: nn.Module, fresh: Sequence[str], stored: int) -> None:
    """Limit the parameters that are initialised: a short edit could ask for a hundred gigabytes."""
    drawn = sum(model.get_parameter(name).numel() for name in fresh)
    if drawn > max(MAX_NEW_NUMBERS, stored):
        raise LoadError(
            f"{drawn:,} new numbers would have to be initialised, for {shortened(', '.join(fresh), 80)}; "
            f"the file holds {stored:,}: make what the edit adds smaller"
        )


def _max_layers(stored: int) -> int:
    """A generous bound: layers may share weights, or have none that are stored."""
    return 4 * stored + 64


def _stored_edits(config: Mapping[str, Any]) -> dict[str, str]:
    """The edits that `save` stored in config.json."""
    ours = config.get("clearhead", {})
    edits = ours.get("edit", {}) if isinstance(ours, dict) else None
    if not isinstance(edits, dict) or not all(isinstance(value, str) for value in edits.values()):
        raise LoadError('config.json: "clearhead" is not {"edit": {"Kind.field": "value"}}')
    return edits


def _split_extras(tensors: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], weights.StateDict]:
    """The tensors of the family, and those that only an edited model has, without their prefix."""
    own = [name for name in tensors if name.startswith(EXTRA)]
    if not own:
        return tensors, {}
    rest = {name: tensors[name] for name in tensors if not name.startswith(EXTRA)}
    return rest, {name.removeprefix(EXTRA): tensors[name] for name in own}


def _check_dtypes(loaded: weights.Loaded) -> None:
    for name, x in loaded.state.items():
        if x.dtype not in WEIGHT_DTYPES:
            kind = str(x.dtype).removeprefix("torch.")
            raise LoadError(
                f"{name} is {kind}; expected float32, float16 or bfloat16: quantized weights cannot be read "
                f"here, load them in one of these"
            )


def _check(model: nn.Module, loaded: weights.Loaded, allowed: Sequence[str]) -> tuple[str, ...]:
    """Raise one error for all tensors that are unknown, missing or of the wrong shape.

    Returns the missing parameters that `allowed` covers.
    """
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
    """Assign the tensors to the empty model without copying; initialise those in `fresh`."""
    if fresh:
        model.to_empty(device="cpu")
        initialise(model, spec.init, seed)
        dtype = next((x.dtype for x in state.values() if x.is_floating_point()), torch.float32)
        drawn = {name: model.get_parameter(name).detach().to(dtype) for name in fresh}
        state = {**state, **drawn}
    model.load_state_dict(state, strict=False, assign=True)
    model.requires_grad_()  # stored tensors have no gradient flag
