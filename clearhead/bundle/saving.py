"""Saving: a bundle in, a Hugging Face folder out that `transformers` opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import weights
from ..errors import SpecError
from ..families import Family
from ..families.family import modern
from ..store import write
from .bundle import Bundle


def save(bundle: Bundle, folder: str | Path) -> None:
    """Load followed by save gives back the same tensors, bit for bit, under the same names."""
    family = bundle.family
    if family is None:
        raise SpecError(
            "this model was built from a spec and belongs to no family, so no config.json can describe it; "
            "build it by the name of a family: build('gpt2', n_layer=2)"
        )
    write(
        folder,
        config=_config(bundle, family),
        tensors=_tensors(bundle, family),
        generation=bundle.generation or None,
        files={**bundle.files, **(bundle.tokenizer.files if bundle.tokenizer else {})},
    )


def _tensors(bundle: Bundle, family: Family) -> weights.State:
    report = bundle.report
    names = [*report.used, *report.aliases]
    config = family.config(bundle.config, stored=names)
    own = {name: p.detach() for name, p in bundle.model.named_parameters()}
    theirs = weights.export(own, family.weights(config, bundle.task)) | report.aliases | report.kept
    bare = report.bare or (not names and bundle.task == "hidden")
    if not bare:
        return theirs
    return {name.removeprefix(family.prefix): x for name, x in theirs.items()}


def _config(bundle: Bundle, family: Family) -> dict[str, Any]:
    config = modern(bundle.config)
    config["model_type"] = family.key
    config.setdefault("architectures", [family.architectures[bundle.task]])
    config["dtype"] = str(next(bundle.model.parameters()).dtype).removeprefix("torch.")
    return config
