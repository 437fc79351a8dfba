"""Tasks of encoder-decoders: translation and denoising. Rows and a tokenizer in; a task out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from torch import Tensor

from ...bundle import Bundle
from ...data import NOISES, PROMPT_COLUMNS, drop_spans, language_of
from ...generate import EndTokens, Prompt, generate
from ...nn import TransformerModel
from ...tasks import Corrupt, SpecialIds, TextPair, TextToText
from ...text import Tokenizer
from ..rows import Dataset
from ..settings import RunConfig
from .builder import (
    DEFAULT_MASK,
    BuiltTask,
    batch_limits,
    common_arguments,
    config_of,
    cut_into_pieces,
    encode_all,
    encode_cut,
    special_ids,
)


def build_translate(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    ids = special_ids(tokenizer, rows.base)
    source_column, target_column = PROMPT_COLUMNS[rows.schema.form]
    length, prefix = run.data.length, run.data.prefix or ""
    first = _target_start(tokenizer, rows.base, ids)
    splits: dict[str, list[TextPair]] = {}
    for name, split in rows.splits.items():
        texts = [prefix + row[source_column] for row in split]
        if run.data.truncate == "source":
            encodings = encode_cut(tokenizer, texts, None, length, name, notes, what="sources")
        else:
            encodings = tokenizer.encode_batch(texts)
        # Without special tokens: the task adds the start and end tokens.
        targets = encode_all(tokenizer, [row[target_column] for row in split], specials=False)
        sources = [list(encoding.ids) for encoding in encodings]
        references = [row[target_column] for row in split]
        targets = [[*first, *target] for target in targets]
        pairs = [TextPair(*each) for each in zip(sources, targets, references, strict=True)]
        kept = [p for p in pairs if len(p.source) <= length and len(p.target) < length]
        if len(kept) < len(pairs):
            notes.append(f"{name}: {len(pairs) - len(kept):,} pairs longer than {length} tokens left out")
        splits[name] = kept
    task = TextToText(
        splits, ids=ids, **batch_limits(run), text=tokenizer.decode, decode=partial(_decode, ids=ids),
        language=run.data.language or language_of([row[target_column] for row in rows.splits["train"]]),
        smoothing=run.data.smoothing, **common_arguments(run, rows),
    )  # fmt: skip
    return BuiltTask(task, "tokens", _pair_config(tokenizer), _generation(run, ids))


def build_denoise(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """BART: each time a text is used, one of the five kinds of noise is applied to it."""
    mask = tokenizer.mask.id if tokenizer.mask else DEFAULT_MASK

    def corrupt(text: Sequence[int], rng: Random) -> tuple[list[int], list[int]]:
        kind = list(NOISES)[int(rng.random() * len(NOISES))]
        return NOISES[kind](text, rng, mask, 0.3), list(text)

    return _build_denoising(run, rows, tokenizer, corrupt)


def build_spans(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """T5: spans are replaced by sentinels: a checkpoint's own, or the last hundred ids of the vocabulary."""
    stored = [tokenizer.id_of(f"<extra_id_{i}>") for i in range(100)]
    known = [i for i in stored if i is not None]
    vocab = tokenizer.vocab if known else tokenizer.vocab + 100
    sentinels = known or range(vocab - 1, vocab - 101, -1)
    built = _build_denoising(
        run, rows, tokenizer, lambda text, rng: drop_spans(text, rng, sentinels=sentinels)
    )
    return BuiltTask(built.task, "tokens", {**built.config, "vocab_size": vocab}, built.generation)


def _build_denoising(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, noise: Corrupt) -> BuiltTask:
    ids = special_ids(tokenizer, rows.base)
    before, after = _frame(tokenizer)
    after = after or [ids.end]

    def corrupt(text: Sequence[int], rng: Random) -> tuple[list[int], list[int]]:
        source, target = noise(text, rng)
        return [*before, *source, *after], target

    pieces = {
        name: cut_into_pieces(tokenizer, split, run.data.length - 1 - len(before + after), specials=False)
        for name, split in rows.splits.items()
    }
    splits = {
        name: [TextPair([*before, *text, *after], text) for text in texts] for name, texts in pieces.items()
    }
    task = TextToText(
        splits,
        ids=ids,
        **batch_limits(run),
        corrupt=corrupt,
        smoothing=run.data.smoothing,
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "tokens", _pair_config(tokenizer), _generation(run, ids))


def _target_start(tokenizer: Tokenizer, base: Bundle | None, ids: SpecialIds) -> list[int]:
    """The tokens that a checkpoint generates before the text: BART's <s>, the language code of mBART.

    They follow the start token, and are what `generate` forces (`forced_bos_token_id`).
    """
    if base is None:
        return []
    forced = {**base.config, **base.generation}.get("forced_bos_token_id")
    if isinstance(forced, int):
        return [forced]
    return [token for token in _frame(tokenizer)[0] if token != ids.start]


def _frame(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text."""
    pieces = tokenizer.encode("a").tokens
    real = [i for i, piece in enumerate(pieces) if piece.side is not None]
    if not real:
        return [], []
    return [p.id for p in pieces[: real[0]]], [p.id for p in pieces[real[-1] + 1 :]]


def _pair_config(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = special_ids(tokenizer)
    return {**config_of(tokenizer), "decoder_start_token_id": ids.start, "forced_eos_token_id": None}


def _generation(run: RunConfig, ids: SpecialIds) -> dict[str, Any]:
    ids_by_name = {"pad_token_id": ids.pad, "eos_token_id": ids.end, "decoder_start_token_id": ids.start}
    # A model trained on truncated sources also truncates them when it generates.
    truncation = {"truncate_source": True} if run.data.truncate == "source" else {}
    return {**ids_by_name, **truncation, "max_length": run.data.length}


def _decode(
    model: TransformerModel, source: Tensor, mask: Tensor, limit: int, *, ids: SpecialIds
) -> list[list[int]]:
    start = source.new_full((len(source), 1), ids.start)
    positions = model.spec.head_tower.max_length
    if positions is not None:  # an untrained model never emits the end token; stop at the last position
        limit = min(limit, positions)
    run = generate(model, Prompt(source, mask, start), stops=(EndTokens((ids.end,)),), limit=limit)
    return [answers[0].text_ids for answers in run.finish()]
