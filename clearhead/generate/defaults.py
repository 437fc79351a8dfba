"""What a checkpoint defines about generation: its decoder, maximum length, default settings and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..nn import Attention, DynamicNTK, LongRope, Model, Rope, Tower, WordHead
from ..text import Tokenizer
from .settings import GenerationSettings, as_tuple

# Settings that older checkpoints keep in config.json instead of generation_config.json.
LEGACY = (
    "max_length", "min_length", "num_beams", "length_penalty", "early_stopping", "no_repeat_ngram_size",
    "repetition_penalty", "do_sample", "temperature", "top_k", "top_p", "bad_words_ids",
    "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip
UNCHOSEN = {"max_length": 20, "top_k": 50}  # defaults that older libraries wrote out; nobody chose them
SPECIAL = ("eos_token_id", "pad_token_id", "decoder_start_token_id")


def decoder_of(spec: Model) -> tuple[Tower, WordHead] | None:
    """The tower that generates and its head; None for models that do not generate text."""
    return (spec.head_tower, spec.head) if spec.generates and isinstance(spec.head, WordHead) else None


def trained_length(tower: Tower, config: Mapping[str, Any]) -> int | None:
    """The length of the training texts of a model with rotary positions; quality drops beyond it."""
    length = config.get("max_position_embeddings")
    rotary = isinstance(tower.positions, Rope) and not isinstance(tower.positions.stretch, DynamicNTK)
    return length if rotary and isinstance(length, int) else None


def switch_length(tower: Tower) -> int | None:
    """The length beyond which rotary positions take other frequencies, for all tokens of a run."""
    stretch = tower.positions.stretch if isinstance(tower.positions, Rope) else None
    return stretch.length if isinstance(stretch, DynamicNTK | LongRope) else None


def cache_values(spec: Model) -> int:
    """Numbers in the KV cache per token, of all decoder layers together; 0 for models without a decoder."""
    if not spec.decodes:
        return 0
    tower, values = spec.head_tower, 0
    for i in range(tower.depth):
        attention = tower.pattern[i % len(tower.pattern)].attention
        if not isinstance(attention, Attention):
            continue
        head = attention.head_width(tower.width)
        # A running state has a constant size, so it does not count per token.
        if attention.kernel.build(attention.heads, head).cache_kind == "keys":
            values += attention.cached(tower.width, 1, 1)
    return values


def default_settings(
    spec: Model, config: Mapping[str, Any], generation: Mapping[str, Any], tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """The checkpoint's settings: `generation` is generation_config.json; older files put them in `config`."""
    ids = {name: config.get(name) for name in SPECIAL}
    if not spec.is_encoder_decoder:
        del ids["decoder_start_token_id"]
    elif ids["decoder_start_token_id"] is None:
        ids["decoder_start_token_id"] = config.get("bos_token_id")
    if ids["eos_token_id"] is None and tokenizer is not None and tokenizer.eos is not None:
        ids["eos_token_id"] = tokenizer.eos.id
    older = {} if generation else {k: config[k] for k in LEGACY if k in config}
    older = {k: v for k, v in older.items() if UNCHOSEN.get(k) != v}
    return {**ids, **older, **{k: v for k, v in generation.items() if v is not None}}


def drop_unknown_ids(settings: GenerationSettings, vocab: int) -> GenerationSettings:
    """End, suppressed and banned ids outside the vocabulary have no effect; a forced one is an error."""
    for name in ("forced_bos_token_id", "forced_eos_token_id", "begin", "decoder_start_token_id"):
        for token in as_tuple(getattr(settings, name)):
            if token >= vocab:
                raise InputError(f"{name} is {token}, but the vocabulary has tokens 0 to {vocab - 1}")
    return replace(
        settings,
        eos_token_id=[i for i in settings.ends if i < vocab],
        suppress_tokens=[i for i in settings.suppress_tokens if 0 <= i < vocab],
        begin_suppress_tokens=[i for i in settings.begin_suppress_tokens if 0 <= i < vocab],
        bad_words_ids=[word for word in settings.bad_words_ids if all(0 <= i < vocab for i in word)],
    )
