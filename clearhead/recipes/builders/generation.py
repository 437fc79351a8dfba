"""Tasks of generation: translation, denoising, language modelling. Rows and a tokenizer in; a task out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

from ...data import NOISES, drop_spans
from ...generate import EndTokens, Prompt, Sample, Temperature, generate
from ...nn import TransformerModel
from ...tasks import CausalLM, SpecialIds, TextPair, TextToText
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
    special_ids,
)
from .chats import encode_chats


def build_translate(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    ids = special_ids(tokenizer)
    source_column, target_column = ("src", "tgt") if rows.schema.form == "pair" else ("prompt", "completion")
    splits: dict[str, list[TextPair]] = {}
    for name, split in rows.splits.items():
        # Without special tokens: the task adds the start and end tokens.
        sides = (
            encode_all(tokenizer, [row[column] for row in split], specials=False)
            for column in (source_column, target_column)
        )
        references = [row[target_column] for row in split]
        pairs = [
            TextPair(source, target, text) for source, target, text in zip(*sides, references, strict=True)
        ]
        if run.data.truncate == "source":
            pairs = _truncated(pairs, run.data.length - 1, name, notes)
        kept = [p for p in pairs if max(len(p.source), len(p.target)) < run.data.length]
        if len(kept) < len(pairs):
            notes.append(
                f"{name}: {len(pairs) - len(kept):,} pairs longer than {run.data.length} tokens left out"
            )
        splits[name] = kept
    task = TextToText(
        splits, ids=ids, **batch_limits(run), text=tokenizer.decode, decode=partial(_decode, ids=ids),
        language=run.data.language, smoothing=run.data.smoothing, **common_arguments(run, rows),
    )  # fmt: skip
    return BuiltTask(task, "tokens", _pair_config(tokenizer), _generation(run, ids))


def _truncated(pairs: list[TextPair], length: int, split: str, notes: list[str]) -> list[TextPair]:
    """Sources cut to `length` tokens, with room for the end token."""
    too_long = sum(len(pair.source) > length for pair in pairs)
    if too_long:
        notes.append(f"{split}: {too_long:,} of {len(pairs):,} sources cut to {length} tokens")
    return [replace(pair, source=pair.source[:length]) for pair in pairs]


def build_denoise(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """BART: each time a text is used, one of the five kinds of noise is applied to it."""
    mask = tokenizer.mask.id if tokenizer.mask else DEFAULT_MASK

    def corrupt(text: Sequence[int], rng: Random) -> tuple[list[int], list[int]]:
        kind = list(NOISES)[int(rng.random() * len(NOISES))]
        return NOISES[kind](text, rng, mask, 0.3), list(text)

    return _build_denoising(run, rows, tokenizer, corrupt)


def build_spans(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """T5: spans are replaced by sentinels, which are the last hundred ids of the vocabulary."""
    vocab = tokenizer.vocab
    sentinels = range(vocab + 99, vocab - 1, -1)
    built = _build_denoising(
        run, rows, tokenizer, lambda text, rng: drop_spans(text, rng, sentinels=sentinels)
    )
    return BuiltTask(built.task, "tokens", {**built.config, "vocab_size": vocab + 100}, built.generation)


def _build_denoising(
    run: RunConfig,
    rows: Dataset,
    tokenizer: Tokenizer,
    corrupt: Callable[[Sequence[int], Random], tuple[list[int], list[int]]],
) -> BuiltTask:
    ids = special_ids(tokenizer)
    splits = {
        name: [
            TextPair(text, text)
            for text in cut_into_pieces(tokenizer, split, run.data.length - 2, specials=False)
        ]
        for name, split in rows.splits.items()
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


def build_causal(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    splits, trained = _encode_with_targets(rows, tokenizer)
    task = CausalLM(
        splits,
        length=run.data.length,
        rows=run.data.batch_size or run.data.rows,
        pad=special_ids(tokenizer).pad,
        trained=trained,
        continue_text=partial(_continue_text, tokenizer=tokenizer, length=run.data.length),
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "tokens", config_of(tokenizer))


Split = dict[str, list[list[int]]]


def _encode_with_targets(rows: Dataset, tokenizer: Tokenizer) -> tuple[Split, Split | None]:
    """The texts as ids, and which of these are training targets: all of a plain text (None), the completion
    of a prompt, the assistant's messages of a chat.
    """
    if rows.schema.form == "text":
        texts = {name: [row["text"] for row in split] for name, split in rows.splits.items()}
        return {name: encode_all(tokenizer, split) for name, split in texts.items()}, None
    splits: Split = {}
    trained: Split = {}
    if rows.schema.form == "messages":
        for name, split in rows.splits.items():
            flagged = encode_chats(tokenizer, split)
            splits[name], trained[name] = [ids for ids, _ in flagged], [flags for _, flags in flagged]
        return splits, trained
    source_column, target_column = ("src", "tgt") if rows.schema.form == "pair" else ("prompt", "completion")
    end = special_ids(tokenizer).end
    for name, split in rows.splits.items():
        sides = [
            encode_all(tokenizer, [row[column] for row in split]) for column in (source_column, target_column)
        ]
        pairs = list(zip(*sides, strict=True))
        splits[name] = [[*prompt, *completion, end] for prompt, completion in pairs]
        trained[name] = [[0] * len(prompt) + [1] * (len(completion) + 1) for prompt, completion in pairs]
    return splits, trained


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


def _continue_text(model: TransformerModel, ids: list[int], *, tokenizer: Tokenizer, length: int) -> str:
    """The first tokens of a text and a sampled continuation."""
    prompt = ids[: min(16, length // 4)]
    limit = min(80, length - len(prompt))
    run = generate(
        model, Prompt(torch.tensor([prompt])), strategy=Sample(), filters=(Temperature(0.8),), limit=limit
    )
    continuation = run.finish()[0][0].text_ids
    return f"{tokenizer.decode(prompt)} … {tokenizer.decode(continuation)}"
