"""The text generator of a bundle: settings over the checkpoint's defaults; an error if it cannot generate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..generate import TextGenerator, decoder_of, default_settings, trained_length
from ..nn import Tower
from ..text import language_id, language_tokens
from .parts import BundleParts

LANGUAGE_SETTINGS = ("source_language", "target_language")  # settings of translators between many languages
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
    defaults = default_settings(bundle.spec, config, bundle.generation, bundle.tokenizer)
    named = {name: settings[name] for name in LANGUAGE_SETTINGS if settings.get(name) is not None}
    languages = {name: _language(bundle, language) for name, language in named.items()}
    settings = {name: value for name, value in settings.items() if name not in LANGUAGE_SETTINGS}
    if "target_language" in languages:
        settings = {**_starts_with(bundle, languages["target_language"], defaults), **settings}
    generator = TextGenerator(
        bundle.model,
        bundle.tokenizer,
        settings,
        defaults=defaults,
        draft=None if assistant is None else assistant.model,
        trained_length=trained_length(tower, bundle.config),
        source_language=languages.get("source_language"),
    )
    if bundle.tokenizer is not None and bundle.spec.is_encoder_decoder:
        known = language_tokens(bundle.tokenizer)
        chosen = {generator.settings.forced_bos_token_id, generator.settings.decoder_start_token_id}
        if known and not chosen & set(known.values()):
            generator.add_note(
                "no target language was given: set target_language, such as " + next(iter(known))
            )
    return generator


def _language(bundle: BundleParts, language: str) -> int:
    if bundle.tokenizer is None or not bundle.spec.is_encoder_decoder:
        raise InputError(f"languages are for translators with language tokens; leave out {language!r}")
    return language_id(bundle.tokenizer, language)


def _starts_with(bundle: BundleParts, token: int, defaults: Mapping[str, Any]) -> dict[str, int]:
    """The settings under which a translation begins with this language token."""
    assert bundle.tokenizer is not None
    known = language_tokens(bundle.tokenizer).values()
    if defaults.get("decoder_start_token_id") in known:  # mBART's first: the decoder starts with the language
        return {"decoder_start_token_id": token}
    return {"forced_bos_token_id": token}


def _decoder(bundle: BundleParts) -> Tower:
    found = decoder_of(bundle.spec)
    if found is None:
        name = bundle.family.title if bundle.family else "this model"
        kind = "hidden" if bundle.spec.head is None else bundle.task
        instead = f"; it {INSTEAD[kind]}" if kind in INSTEAD else ""
        raise InputError(f"{name} cannot generate text{instead}")
    return found[0]
