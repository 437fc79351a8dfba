"""Tasks whose answer is text: translation, repair, continuation. Rows and a tokenizer in; a task out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

from ...data.corrupt import NOISES, drop_spans
from ...generate import EndTokens, Prompt, Sample, generate
from ...generate.defaults import max_length
from ...generate.filters import Temperature
from ...nn.model import PairModel, SingleModel
from ...tasks.causal import CausalLM
from ...tasks.translate import Ids, Pair, TextToText
from ...text.tokenizer import Tokenizer
from ..rows import Rows
from ..settings import Run
from .chats import chats
from .maker import MASK, Made, common, encoded, ids_of, pieces, sizes


def translate(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    ids = ids_of(tokenizer)
    one, two = ("src", "tgt") if rows.shape.form == "pair" else ("prompt", "completion")
    splits: dict[str, list[Pair]] = {}
    for name, split in rows.splits.items():
        # Bare: the task puts start and end around them.
        sides = (encoded(tokenizer, [row[side] for row in split], specials=False) for side in (one, two))
        written = [row[two] for row in split]
        pairs = [Pair(source, target, text) for source, target, text in zip(*sides, written, strict=True)]
        if run.data.truncate == "source":
            pairs = _truncated(pairs, run.data.length - 1, name, notes)
        kept = [p for p in pairs if max(len(p.source), len(p.target)) < run.data.length]
        if len(kept) < len(pairs):
            notes.append(
                f"{name}: {len(pairs) - len(kept):,} pairs longer than {run.data.length} tokens left out"
            )
        splits[name] = kept
    task = TextToText(
        splits, ids=ids, tokens=run.data.tokens, text=tokenizer.decode, decode=partial(_decode, ids=ids),
        language=run.data.language, smoothing=run.data.smoothing, **common(run, rows),
    )  # fmt: skip
    return Made(task, "tokens", _pair_config(tokenizer), _generation(run, ids))


def _truncated(pairs: list[Pair], length: int, split: str, notes: list[str]) -> list[Pair]:
    """The beginnings of long sources, with room for the token that ends them."""
    long = sum(len(pair.source) > length for pair in pairs)
    if long:
        notes.append(f"{split}: {long:,} of {len(pairs):,} sources cut to {length} tokens")
    return [replace(pair, source=pair.source[:length]) for pair in pairs]


def denoise(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    """BART: one of the five kinds of damage, another each time."""
    mask = tokenizer.mask.id if tokenizer.mask else MASK

    def damage(text: Sequence[int], draw: Random) -> tuple[list[int], list[int]]:
        kind = list(NOISES)[int(draw.random() * len(NOISES))]
        return NOISES[kind](text, draw, mask, 0.3), list(text)

    return _repair(run, rows, tokenizer, damage)


def spans(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    """T5: the last hundred ids of the vocabulary are its sentinels."""
    vocab = tokenizer.vocab
    sentinels = range(vocab + 99, vocab - 1, -1)
    made = _repair(run, rows, tokenizer, lambda text, draw: drop_spans(text, draw, sentinels=sentinels))
    return Made(made.task, "tokens", {**made.config, "vocab_size": vocab + 100}, made.generation)


def _repair(
    run: Run,
    rows: Rows,
    tokenizer: Tokenizer,
    damage: Callable[[Sequence[int], Random], tuple[list[int], list[int]]],
) -> Made:
    ids = ids_of(tokenizer)
    splits = {
        name: [Pair(text, text) for text in pieces(tokenizer, split, run.data.length - 2, specials=False)]
        for name, split in rows.splits.items()
    }
    task = TextToText(
        splits,
        ids=ids,
        tokens=run.data.tokens,
        corrupt=damage,
        smoothing=run.data.smoothing,
        **common(run, rows),
    )
    return Made(task, "tokens", _pair_config(tokenizer), _generation(run, ids))


def causal(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    splits, trained = _continued(rows, tokenizer)
    task = CausalLM(
        splits,
        length=run.data.length,
        rows=run.data.rows,
        pad=ids_of(tokenizer).pad,
        trained=trained,
        speak=partial(_go_on, tokenizer=tokenizer, length=run.data.length),
        **common(run, rows),
    )
    return Made(task, "tokens", sizes(tokenizer))


Split = dict[str, list[list[int]]]


def _continued(rows: Rows, tokenizer: Tokenizer) -> tuple[Split, Split | None]:
    """Plain texts as they are; of prompts the completion is learned, of chats what the assistant says."""
    if rows.shape.form == "text":
        texts = {name: [row["text"] for row in split] for name, split in rows.splits.items()}
        return {name: encoded(tokenizer, split) for name, split in texts.items()}, None
    splits: Split = {}
    trained: Split = {}
    if rows.shape.form == "messages":
        for name, split in rows.splits.items():
            flagged = chats(tokenizer, split)
            splits[name], trained[name] = [ids for ids, _ in flagged], [flags for _, flags in flagged]
        return splits, trained
    one, two = ("src", "tgt") if rows.shape.form == "pair" else ("prompt", "completion")
    end = ids_of(tokenizer).end
    for name, split in rows.splits.items():
        sides = [encoded(tokenizer, [row[side] for row in split]) for side in (one, two)]
        pairs = list(zip(*sides, strict=True))
        splits[name] = [[*asked, *answer, end] for asked, answer in pairs]
        trained[name] = [[0] * len(asked) + [1] * (len(answer) + 1) for asked, answer in pairs]
    return splits, trained


def _pair_config(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = ids_of(tokenizer)
    return {**sizes(tokenizer), "decoder_start_token_id": ids.start, "forced_eos_token_id": None}


def _generation(run: Run, ids: Ids) -> dict[str, Any]:
    said = {"pad_token_id": ids.pad, "eos_token_id": ids.end, "decoder_start_token_id": ids.start}
    # A model that has learned from the beginnings of long texts is used in the same way.
    long = {"truncate_source": True} if run.data.truncate == "source" else {}
    return {**said, **long, "max_length": run.data.length}


def _decode(model: PairModel, source: Tensor, mask: Tensor, limit: int, *, ids: Ids) -> list[list[int]]:
    start = source.new_full((len(source), 1), ids.start)
    positions = max_length(model.spec.decoder)
    if positions is not None:  # a model that has not learned to end goes on until there are none left
        limit = min(limit, positions)
    run = generate(model, Prompt(source, mask, start), stops=(EndTokens((ids.end,)),), limit=limit)
    return [answers[0].text_ids for answers in run.finish()]


def _go_on(model: SingleModel, ids: list[int], *, tokenizer: Tokenizer, length: int) -> str:
    """The beginning of a text, and how the model goes on: drawn, as language models are used."""
    begin = ids[: min(16, length // 4)]
    heat = (Temperature(0.8),)
    limit = min(80, length - len(begin))
    run = generate(model, Prompt(torch.tensor([begin])), strategy=Sample(), filters=heat, limit=limit)
    new = run.finish()[0][0].text_ids
    return f"{tokenizer.decode(begin)} … {tokenizer.decode(new)}"
