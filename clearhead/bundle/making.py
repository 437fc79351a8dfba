"""Fresh bundles: a spec, or the name of a family or size and its config, in; first weights out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..errors import SpecError, nearest, quoted
from ..families import Config, Family, HeadKind, family_and_config
from ..nn import Model, TransformerModel
from ..tune import layout
from .bundle import Bundle
from .edits import edited, given, written

EXTRA = "clearhead."  # before the names of tensors that the family itself does not have

# Keys that any config may have: labels, and the tokens that stand for no text.
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
    """`build("bert", hidden_size=64)`, `build("gpt2-medium")` or `build(spec)`: one seed, one model.

    `edit` changes what the family builds: {"Attention.kernel": "Linear"}.
    """
    if isinstance(what, Model):
        what = edited(what, given(edit))
        if config:
            raise SpecError(f"a spec takes no config; given {', '.join(config)}: edit the spec instead")
        return Bundle(what, _first_weights(what, seed, dtype, device))
    if not isinstance(what, str):
        raise SpecError(f"expected a spec, or the name of a family or size; given {quoted(what)}")
    family, full = configured(what, config)
    spec = edited(spec_of(family, full, task), given(edit))
    stored = {**full, "model_type": family.key, "architectures": [family.architectures[task]]}
    stored["dtype"] = str(dtype).removeprefix("torch.")
    model = _first_weights(spec, seed, dtype, device)
    return Bundle(spec, model, family=family, task=task, config=stored, edits=written(given(edit)))


def _first_weights(spec: Model, seed: int, dtype: torch.dtype, device: str) -> TransformerModel:
    model = spec.build(seed=seed, dtype=dtype, device=device)
    layout.for_inference(model)  # as `load` does: what is built answers as what is saved and loaded
    return model


def configured(name: str, changes: dict[str, Any]) -> tuple[Family, Config]:
    """A named family or size with some keys changed; a key it does not have is refused."""
    family, full = family_and_config(name)
    known = {*full, *ANYWHERE}
    for key in changes:
        if key not in known:
            raise SpecError(f"{family.title} has no config key {key!r}; {nearest(key, known)}")
    return family, family.config({**full, **changes})


def spec_of(family: Family, config: Config, task: HeadKind) -> Model:
    if task not in family.architectures:
        heads = ", ".join(family.architectures)
        raise SpecError(f"{family.title} has no head for {task!r} here; it has {heads}")
    return family.spec(config, task)


def added(plain: Model, edited: Model) -> list[str]:
    """The parameters that an edited model has and the family's own has not."""
    known = {name for name, _ in plain.empty().named_parameters()}
    return [name for name, _ in edited.empty().named_parameters() if name not in known]
