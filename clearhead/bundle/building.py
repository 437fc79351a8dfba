"""Building: a spec, or the name of a family or size and its config, in; a bundle with initial weights out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..device import choose_device
from ..engine import layout
from ..errors import SpecError, nearest, quoted
from ..families import Config, Family, HeadKind, family_and_config
from ..nn import Model, TransformerModel
from .bundle import Bundle
from .edits import apply_edits, check_edits, edits_as_text
from .specs import spec_of

# Keys that any config may have: labels and special tokens.
ANYWHERE = {
    "id2label", "label2id", "num_labels", "pad_token_id", "bos_token_id", "eos_token_id",
    "decoder_start_token_id", "forced_eos_token_id",
}  # fmt: skip


def build(
    what: Model | str,
    *,
    task: HeadKind = "tokens",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    edit: Mapping[str, Any] | None = None,
    **config: Any,
) -> Bundle:
    """`build("bert", hidden_size=64)`, `build("gpt2-medium")` or `build(spec)`, initialised with `seed`.

    `edit` changes the spec of the family: {"Attention.kernel": "Linear"}.
    """
    device = choose_device(device)
    if isinstance(what, Model):
        what = apply_edits(what, check_edits(edit))
        if config:
            raise SpecError(f"a spec takes no config; given {', '.join(config)}: edit the spec instead")
        return Bundle(what, _initialised(what, seed, dtype, device))
    if not isinstance(what, str):
        raise SpecError(f"expected a spec, or the name of a family or size; given {quoted(what)}")
    family, full = config_for(what, config)
    spec = apply_edits(spec_of(family, full, task), check_edits(edit))
    stored = {**full, "model_type": family.key, "architectures": [family.architectures[task]]}
    stored["dtype"] = str(dtype).removeprefix("torch.")
    model = _initialised(spec, seed, dtype, device)
    return Bundle(
        spec, model, family=family, task=task, config=stored, edits=edits_as_text(check_edits(edit))
    )


def _initialised(spec: Model, seed: int, dtype: torch.dtype, device: str) -> TransformerModel:
    model = spec.build(seed=seed, dtype=dtype, device=device)
    layout.for_inference(model)  # as `load` does, so that saving and loading changes no bit of the output
    return model


def config_for(name: str, changes: dict[str, Any]) -> tuple[Family, Config]:
    """The config of a named family or size with some keys changed; unknown keys are an error."""
    family, full = family_and_config(name)
    known = {*full, *ANYWHERE}
    for key in changes:
        if key not in known:
            raise SpecError(f"{family.title} has no config key {key!r}; {nearest(key, known)}")
    return family, family.config({**full, **changes})
