"""The text generator of a bundle: settings over the checkpoint's defaults; an error if it cannot generate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..generate import TextGenerator, decoder_of, default_settings, trained_length
from ..nn import Tower
from .parts import BundleParts

INSTEAD = {  # what a model that does not generate can do
    "hidden": "gives hidden states: clearhead embed makes sentence vectors of them",
    "tokens": "fills in masked words: clearhead predict does that",
    "labels": "labels texts: clearhead predict does that",
    "tags": "labels tokens: clearhead predict does that",
    "span": "finds answers in a text: clearhead predict does that",
    "choice": "scores the choices of a question: clearhead predict does that",
    "replaced": "finds replaced tokens: clearhead predict does that",
    "pair": "says whether two texts follow each other: clearhead predict does that",
    "pretrain": "fills in masked words: clearhead predict does that",
    "encoder": "gives hidden states: clearhead embed makes sentence vectors of them",
}


def text_generator(
    bundle: BundleParts, settings: Mapping[str, Any], assistant: BundleParts | None = None
) -> TextGenerator:
    """A generator with these settings over the checkpoint's own; `assistant` is the draft model's bundle."""
    tower = _decoder(bundle)
    if assistant is not None:
        _decoder(assistant)
    config = bundle.family.config(bundle.config) if bundle.family else bundle.config
    return TextGenerator(
        bundle.model,
        bundle.tokenizer,
        settings,
        defaults=default_settings(bundle.spec, config, bundle.generation, bundle.tokenizer),
        draft=None if assistant is None else assistant.model,
        trained_length=trained_length(tower, bundle.config),
    )


def _decoder(bundle: BundleParts) -> Tower:
    found = decoder_of(bundle.spec)
    if found is None:
        name = bundle.family.title if bundle.family else "this model"
        kind = "hidden" if bundle.spec.head is None else bundle.task
        instead = f"; it {INSTEAD[kind]}" if kind in INSTEAD else ""
        raise InputError(f"{name} cannot generate text{instead}")
    return found[0]
