"""What a checkpoint says about speaking: whether it can, how far, and with which settings and tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..generate import Settings
from ..generate.settings import several
from ..nn.heads import WordHead
from ..nn.model import Pair, Single
from ..nn.positions import Learned
from ..nn.rope import DynamicNTK, Rope
from ..nn.tower import Tower
from .bundle import Bundle

CAN = {  # what a model that does not speak can do instead
    "hidden": "gives hidden states: clearhead embed makes sentence vectors of them",
    "tokens": "fills in masked words: clearhead predict does that",
    "labels": "labels texts: clearhead predict does that",
    "tags": "labels tokens: clearhead predict does that",
    "span": "finds answers in a text: clearhead predict does that",
    "pair": "says whether two texts follow each other: clearhead predict does that",
    "pretrain": "fills in masked words: clearhead predict does that",
}
# What older files keep in config.json, not in generation_config.json; some write defaults nobody chose.
UNSAID = {"max_length": 20, "top_k": 50}
LEGACY = (
    "max_length", "min_length", "num_beams", "length_penalty", "early_stopping", "no_repeat_ngram_size",
    "repetition_penalty", "do_sample", "temperature", "top_k", "top_p", "bad_words_ids",
    "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip
SPECIAL = ("eos_token_id", "pad_token_id", "decoder_start_token_id")


def speaker(bundle: Bundle) -> tuple[Tower, WordHead]:
    """The tower that speaks, and its head; an encoder has none, and says what it can do instead."""
    spec = bundle.spec
    if isinstance(spec, Pair) and isinstance(spec.head, WordHead):
        return spec.decoder, spec.head
    if isinstance(spec, Single) and isinstance(spec.head, WordHead) and spec.tower.causal:
        return spec.tower, spec.head
    name = bundle.family.title if bundle.family else "this model"
    raise InputError(f"{name} cannot generate text; it {CAN[bundle.task]}")


def window(tower: Tower) -> int | None:
    """How many positions a tower has, where they are learned; other schemes have no end."""
    return tower.positions.length if isinstance(tower.positions, Learned) else None


def trained_length(bundle: Bundle) -> int | None:
    """How long the texts were that rotary positions were trained on; beyond it a model loses the thread."""
    tower, _ = speaker(bundle)
    said = bundle.config.get("max_position_embeddings")
    turned = isinstance(tower.positions, Rope) and not isinstance(tower.positions.stretch, DynamicNTK)
    return said if turned and isinstance(said, int) else None


def stored(bundle: Bundle) -> dict[str, Any]:
    """What the checkpoint says about decoding: generation_config.json, or an older config.json."""
    config = bundle.family.config(bundle.config) if bundle.family else bundle.config
    ids = {name: config.get(name) for name in SPECIAL}
    if not isinstance(bundle.spec, Pair):
        del ids["decoder_start_token_id"]
    elif ids["decoder_start_token_id"] is None:
        ids["decoder_start_token_id"] = config.get("bos_token_id")
    tokenizer = bundle.tokenizer
    if ids["eos_token_id"] is None and tokenizer is not None and tokenizer.eos is not None:
        ids["eos_token_id"] = tokenizer.eos.id
    older = {} if bundle.generation else {k: config[k] for k in LEGACY if k in config}
    older = {k: v for k, v in older.items() if UNSAID.get(k) != v}
    return {**ids, **older, **{k: v for k, v in bundle.generation.items() if v is not None}}


def known_ids(settings: Settings, vocab: int) -> Settings:
    """An end token that no vocabulary has can never be said; a forced one is a mistake."""
    for name in ("forced_bos_token_id", "forced_eos_token_id", "begin", "decoder_start_token_id"):
        for token in several(getattr(settings, name)):
            if token >= vocab:
                raise InputError(f"{name} is {token}, but the vocabulary has tokens 0 to {vocab - 1}")
    return replace(
        settings,
        eos_token_id=[i for i in settings.ends if i < vocab],
        suppress_tokens=[i for i in settings.suppress_tokens if 0 <= i < vocab],
        begin_suppress_tokens=[i for i in settings.begin_suppress_tokens if 0 <= i < vocab],
        bad_words_ids=[word for word in settings.bad_words_ids if all(0 <= i < vocab for i in word)],
    )
