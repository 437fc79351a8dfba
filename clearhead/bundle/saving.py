"""Saving: a bundle in, a Hugging Face folder out that `transformers` can load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import weights
from ..engine import stored_parameters
from ..errors import SaveError, SpecError
from ..families import Family, normalize_config
from ..store import write_folder
from ..tune import has_tuned_parts
from .adapters import is_adapter, save_adapter
from .parts import BundleParts
from .specs import EXTRA, added_parameters, spec_of


def save(bundle: BundleParts, folder: str | Path) -> None:
    """Write a folder. Loading and saving a checkpoint gives the same tensors under the same names.

    Of a tuned bundle its adapter is written, unless parameters of the model itself learned (`Full`).
    """
    if is_adapter(bundle):
        save_adapter(bundle, folder)
        return
    if bundle.tuning is None and has_tuned_parts(bundle.model):
        raise SaveError(
            "parts of the tuning are switched off in this bundle, which is one to look at; save the tuned "
            "one, or one without whole layers of LoRA or bottlenecks: tuned.without(tuning='layer:3')"
        )
    family = bundle.family
    if family is None:
        raise SpecError(
            "this model was built from a spec and belongs to no family, so no config.json can describe it; "
            "build it by the name of a family: build('gpt2', n_layer=2)"
        )
    write_folder(
        folder,
        config=_config(bundle, family),
        tensors=saved_tensors(bundle),
        generation=bundle.generation or None,
        files={**bundle.files, **(bundle.tokenizer.files if bundle.tokenizer else {})},
    )
    if bundle.loaded_from is None:
        bundle.loaded_from = str(folder)  # where adapters of it, saved later, find it


def saved_weights(bundle: BundleParts, tensors: Mapping[str, Tensor]) -> weights.StateDict:
    """The inverse of `save`: tensors as it wrote them, under the parameter names of the model."""
    family = bundle.family
    if family is None:
        return dict(tensors)
    prefix = family.prefix if _bare(bundle, family) else ""
    theirs = {
        prefix + family.table_name(name): x for name, x in tensors.items() if not name.startswith(EXTRA)
    }
    extras = {name.removeprefix(EXTRA): x for name, x in tensors.items() if name.startswith(EXTRA)}
    return weights.load_tensors(theirs, _table(bundle, family)).state | extras


def saved_tensors(bundle: BundleParts) -> weights.StateDict:
    """The tensors of a bundle of some family under the names of its checkpoints."""
    family = bundle.family
    if family is None:
        raise SpecError(
            "this model was built from a spec and belongs to no family; build it by a family's name"
        )
    report, table = bundle.report, _table(bundle, family)
    own = {name: p.cpu() for name, p in stored_parameters(bundle.model).items()}
    extras = {EXTRA + name: own.pop(name).contiguous() for name in _extras(bundle, family)}
    theirs = weights.export(own, table) | weights.export_aliases(own, table, report.aliases) | report.kept
    if _bare(bundle, family):
        theirs = {name.removeprefix(family.prefix): x for name, x in theirs.items()}
    return {family.stored_name(name, bundle.task): x for name, x in theirs.items()} | extras


def _extras(bundle: BundleParts, family: Family) -> list[str]:
    """Parameters that only exist because of an edit."""
    if not bundle.edits:
        return []
    config = family.config(bundle.config, stored=[*bundle.report.used, *bundle.report.aliases])
    return added_parameters(spec_of(family, config, bundle.task), bundle.spec)


def _table(bundle: BundleParts, family: Family) -> weights.Table:
    names = [*bundle.report.used, *bundle.report.aliases]
    return family.weights(family.config(bundle.config, stored=names), bundle.task)


def _bare(bundle: BundleParts, family: Family) -> bool:
    """Whether names are written without the family's prefix, as those of base models."""
    nothing_read = not bundle.report.used and not bundle.report.aliases
    return bundle.report.bare or (nothing_read and bundle.task in family.bare)


def _config(bundle: BundleParts, family: Family) -> dict[str, Any]:
    config = normalize_config(bundle.config)
    config["model_type"] = family.key
    config.setdefault("architectures", [family.architectures[bundle.task]])
    if bundle.edits:
        config["clearhead"] = {"edit": bundle.edits}
    stored = next(iter(stored_parameters(bundle.model).values()))
    config["dtype"] = str(stored.dtype).removeprefix("torch.")
    return config
