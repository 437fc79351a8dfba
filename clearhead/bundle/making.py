"""Fresh bundles: a spec, or the name of a family or size and its config, in; first weights out."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import SpecError, nearest
from ..families import Config, Family, Task, named
from ..nn.model import Model
from .bundle import Bundle

# Keys that any config may have: labels, and the tokens that stand for no text.
ANYWHERE = {
    "id2label", "label2id", "num_labels", "pad_token_id", "bos_token_id", "eos_token_id",
    "decoder_start_token_id", "forced_eos_token_id",
}  # fmt: skip


def build(
    what: Model | str,
    *,
    task: Task = "tokens",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    **config: Any,
) -> Bundle:
    """`build("bert", hidden_size=64)`, `build("gpt2-medium")` or `build(spec)`: one seed, one model."""
    if isinstance(what, Model):
        if config:
            raise SpecError(f"a spec takes no config; given {', '.join(config)}: edit the spec instead")
        return Bundle(what, what.build(seed=seed, dtype=dtype, device=device))
    family, full = configured(what, config)
    spec = spec_of(family, full, task)
    said = {**full, "model_type": family.key, "architectures": [family.architectures[task]]}
    said["dtype"] = str(dtype).removeprefix("torch.")
    model = spec.build(seed=seed, dtype=dtype, device=device)
    return Bundle(spec, model, family=family, task=task, config=said)


def configured(name: str, changes: dict[str, Any]) -> tuple[Family, Config]:
    """A named family or size with some keys changed; a key it does not have is refused."""
    family, full = named(name)
    known = {*full, *ANYWHERE}
    for key in changes:
        if key not in known:
            raise SpecError(f"{family.title} has no config key {key!r}; {nearest(key, known)}")
    return family, family.config({**full, **changes})


def spec_of(family: Family, config: Config, task: Task) -> Model:
    if task not in family.architectures:
        heads = ", ".join(family.architectures)
        raise SpecError(f"{family.title} has no head for {task!r} here; it has {heads}")
    return family.spec(config, task)
