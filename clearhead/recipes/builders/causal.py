"""Language modelling: texts, or prompts and chats with their answers, and a tokenizer in; a task out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ...bundle import Bundle
from ...data import CompletionExample, encode_completions, fit_examples, set_plain_template
from ...errors import DataError
from ...generate import EndTokens, Prompt, Sample, Temperature, as_tuple, default_settings, generate
from ...nn import TransformerModel
from ...tasks import CausalLM
from ...text import Tokenizer
from ..rows import Dataset
from ..settings import RunConfig
from .builder import BuiltTask, common_arguments, config_of, encode_all, special_ids


def build_causal(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    stops = stop_ids(tokenizer, rows.base)
    needs_template = run.data.template == "chat" or rows.schema.form == "messages"
    if needs_template and tokenizer.chat_template is None:
        notes.append(
            "the tokenizer has no chat template: 'user: ...' and 'assistant: ...' on lines of their own"
        )
        set_plain_template(tokenizer, stops)
    if rows.schema.form == "text":
        splits = {
            name: encode_all(tokenizer, [row["text"] for row in split]) for name, split in rows.splits.items()
        }
        task = CausalLM(splits, **_arguments(run, rows, tokenizer, stops))
        return BuiltTask(task, "tokens", config_of(tokenizer))
    known: Sequence[int] = stops
    examples: dict[str, list[CompletionExample]] = {}
    for name in rows.splits:
        examples[name], known = _encode(rows, name, run.data.length, tokenizer, known, notes)
    task = CausalLM(
        {name: [each.ids for each in split] for name, split in examples.items()},
        trained={name: [each.flags for each in split] for name, split in examples.items()},
        origins={name: [each.row for each in split] for name, split in examples.items()},
        **_arguments(run, rows, tokenizer, known),
    )
    generation = _with_new_stops(tokenizer, stops, known, notes)
    return BuiltTask(task, "tokens", config_of(tokenizer), generation)


def stop_ids(tokenizer: Tokenizer, base: Bundle | None) -> list[int]:
    """The tokens at which generation stops: those of the model to fine-tune, or the tokenizer's."""
    if base is None:
        return [special_ids(tokenizer).end]
    config = base.family.config(base.config) if base.family else base.config
    stored = default_settings(base.spec, config, base.generation, tokenizer)["eos_token_id"]
    return [token for token in as_tuple(stored) if token < tokenizer.vocab]


def _arguments(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, stops: Sequence[int]) -> dict[str, Any]:
    continue_text = partial(_continue_text, tokenizer=tokenizer, length=run.data.length, stops=stops)
    return {
        "length": run.data.length,
        "rows": run.data.batch_size or run.data.rows,
        "pad": special_ids(tokenizer, rows.base).pad,
        "continue_text": continue_text,
        "smoothing": run.data.smoothing,
        **common_arguments(run, rows),
    }


def _encode(
    rows: Dataset, split: str, length: int, tokenizer: Tokenizer, stops: Sequence[int], notes: list[str]
) -> tuple[list[CompletionExample], tuple[int, ...]]:
    """The examples of a split, each of at most `length` tokens, and the tokens that end answers."""
    form, given = rows.schema.form, rows.splits[split]
    # Without a template and without a stop token of the model's, completions end with the usual one.
    ends = stops or ([special_ids(tokenizer, rows.base).end] if tokenizer.chat_template is None else ())
    encoded = encode_completions(form, given, tokenizer, ends)
    fitted = fit_examples(encoded.examples, length)
    found, chats = encoded.examples, "chats" if form == "messages" else "rows"
    answered = len({example.row for example in found})
    notes += [f"{split}: {note}" for note in encoded.notes]
    if answered < len(given):
        count = len(given) - answered
        notes.append(f"{split}: {count:,} {chats} left out: nothing stands before their answer")
    if given and not fitted.examples:
        raise DataError(_none_fits(split, found, length, rows.base))
    if len(found) > answered:
        notes.append(
            f"{split}: {answered:,} {chats} make {len(found):,} examples, so that every answer follows the "
            f"ids that generation is fed"
        )
    if fitted.shortened or fitted.left_out:
        shortened = f"{fitted.shortened:,} of {len(given):,} {chats} shortened to whole answers, "
        notes.append(
            f"{split}: {shortened if form == 'messages' else ''}{fitted.left_out:,} left out: longer than "
            f"{length} tokens (--max-length)"
        )
    return fitted.examples, encoded.stops


def _none_fits(split: str, examples: Sequence[CompletionExample], length: int, base: Bundle | None) -> str:
    if not examples:
        return f"{split}: no row has an answer with something before it; expected a user message first"
    shortest = min(example.answers[0][1] for example in examples)
    longest = max(len(example.ids) for example in examples)
    positions = base.spec.max_length if base is not None else None
    way_out = "raise --max-length" if positions is None or positions > length else "shorten the rows"
    return (
        f"{split}: no answer fits into --max-length {length} with what stands before it: the shortest row "
        f"needs {shortest:,} tokens, the longest has {longest:,}; {way_out}"
    )


def _with_new_stops(
    tokenizer: Tokenizer, known: Sequence[int], found: Sequence[int], notes: list[str]
) -> dict[str, Any]:
    """Settings of generation that also stops where the trained answers end."""
    new = [token for token in found if token not in known]
    if not new:
        return {}
    names = ", ".join(map(tokenizer.text_of, new))
    notes.append(
        f"answers end with {names}, at which generation did not stop: added to eos_token_id in "
        f"generation_config.json"
    )
    return {"eos_token_id": [*known, *new]}


def _continue_text(
    model: TransformerModel, prompt: list[int], *, tokenizer: Tokenizer, length: int, stops: Sequence[int]
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
        stops=(EndTokens(tuple(stops)),) if stops else (),
        limit=limit,
    )
    continuation = run.finish()[0][0].text_ids
    return f"{tokenizer.decode(prompt)} … {tokenizer.decode(continuation)}"
