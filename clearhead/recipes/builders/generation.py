"""Tasks of generation: translation, denoising, language modelling. Rows and a tokenizer in; a task out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

from ...bundle import Bundle
from ...data import NOISES, PROMPT_COLUMNS, drop_spans, encode_completions, language_of
from ...generate import EndTokens, Prompt, Sample, Temperature, generate
from ...nn import TransformerModel
from ...tasks import CausalLM, Corrupt, SpecialIds, TextPair, TextToText
from ...text import PLAIN_TEMPLATE, Tokenizer
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


def build_causal(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    if run.data.template == "chat" and tokenizer.chat_template is None:
        notes.append(
            "the tokenizer has no chat template: 'user: ...' and 'assistant: ...' on lines of their own"
        )
        tokenizer.set_chat_template(PLAIN_TEMPLATE)
    ids, form = special_ids(tokenizer, rows.base), rows.schema.form
    splits: Split = {}
    flags: Split = {}
    for name, split in rows.splits.items():
        examples = encode_completions(form, split, tokenizer, ids.end)
        if form != "text" and not _learns_to_stop(examples, ids.end, rows.base):
            end = tokenizer.decode([ids.end], specials=True)
            notes.append(f"{name}: the template ends no answer with {end}; it is added, so that answers end")
            examples = [([*tokens, ids.end], [*flags, 1]) for tokens, flags in examples]
        if form != "text":
            examples = _truncated_completions(examples, run.data.length, name, notes)
        splits[name], flags[name] = [each[0] for each in examples], [each[1] for each in examples]
    task = CausalLM(
        splits,
        length=run.data.length,
        rows=run.data.batch_size or run.data.rows,
        pad=ids.pad,
        trained=None if form == "text" else flags,
        continue_text=partial(_continue_text, tokenizer=tokenizer, length=run.data.length, end=ids.end),
        smoothing=run.data.smoothing,
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "tokens", config_of(tokenizer))


Split = dict[str, list[list[int]]]


def _learns_to_stop(examples: Sequence[tuple[list[int], list[int]]], end: int, base: Bundle | None) -> bool:
    """Whether a token at which generation stops is among those that are learned."""
    stored = {**base.config, **base.generation}.get("eos_token_id") if base is not None else None
    ends = {end, *(stored if isinstance(stored, list) else [])}
    learned = (token for tokens, flags in examples for token, flag in zip(tokens, flags, strict=True) if flag)
    return any(token in ends for token in learned)


def _truncated_completions(
    examples: Sequence[tuple[list[int], list[int]]], length: int, split: str, notes: list[str]
) -> list[tuple[list[int], list[int]]]:
    """Prompts and chats cut to one row; those in which nothing is left to learn are left out."""
    if count := sum(len(ids) > length for ids, _ in examples):
        notes.append(f"{split}: {count:,} of {len(examples):,} rows cut to {length} tokens")
    cut = [(ids[:length], flags[:length]) for ids, flags in examples]
    kept = [(ids, flags) for ids, flags in cut if any(flags[1:])]
    if len(kept) < len(cut):
        notes.append(
            f"{split}: {len(cut) - len(kept):,} rows left out, their prompt alone has {length} tokens"
        )
    return kept


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


def _continue_text(
    model: TransformerModel, prompt: list[int], *, tokenizer: Tokenizer, length: int, end: int
) -> str:
    """A prompt and a sampled continuation."""
    limit = min(80, length - len(prompt))
    if limit < 1:
        return tokenizer.decode(prompt)
    device = next(model.parameters()).device
    run = generate(
        model,
        Prompt(torch.tensor([prompt], device=device)),
        strategy=Sample(),
        filters=(Temperature(0.8),),
        stops=(EndTokens((end,)),),
        limit=limit,
    )
    continuation = run.finish()[0][0].text_ids
    return f"{tokenizer.decode(prompt)} … {tokenizer.decode(continuation)}"
