"""Tracing: a text and, optionally, its target in; a trace of the bundle's model out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..engine import drop_stale_products
from ..errors import InputError, quoted
from ..generate import GenerationResult, Hypothesis, as_tuple
from ..lens import Branch, Token, Trace, TraceInput, Tree, of_encoding, of_ids, trace_ids
from ..nn import SameInputModel
from .generation import text_generator
from .parts import BundleParts

Text = str | Sequence[int] | Tensor


def trace(
    bundle: BundleParts,
    text: Text,
    target: Text | None = None,
    *,
    generate: bool = False,
    beams: int | None = None,
    limit: int = 32,
) -> Trace:
    """One pass over a text and its target; with `generate` or `beams` the model generates the target."""
    generating = generate or beams is not None
    if target is not None and generating:
        raise InputError("give a target, or let the model generate one (generate, beams); not both")
    made = read_input(bundle, text, target)
    if not generating and not (bundle.spec.is_encoder_decoder and target is None):
        return trace_input(bundle, made)
    result = _generate(bundle, made, limit, beams)
    best = trace_input(bundle, _append(bundle, made, result.hypotheses[0]))
    if beams is not None:
        best.tree = _tree(bundle, made, result)
    return best


def read_input(bundle: BundleParts, text: Text, target: Text | None = None) -> TraceInput:
    """The input of the model for a text and its target."""
    return (_pair if bundle.spec.is_encoder_decoder else _single)(bundle, text, target)


def trace_input(bundle: BundleParts, fed: TraceInput) -> Trace:
    """One recorded pass over this input."""
    check_length(bundle, fed)
    drop_stale_products(bundle.model)
    title = bundle.family.title if bundle.family else type(bundle.spec).__name__
    return trace_ids(bundle.model, fed, tokenizer=bundle.tokenizer, title=title)


def check_length(bundle: BundleParts, fed: TraceInput) -> None:
    """Raise an error for a text that is longer than the model reads."""
    for ids, tower in zip((fed.ids, fed.target_ids), bundle.spec.towers.values(), strict=False):
        length, limit = 0 if ids is None else len(ids), tower.max_length
        if limit is not None and length > limit:
            raise InputError(f"the text is {length} tokens, this model reads at most {limit}; shorten it")


def _single(bundle: BundleParts, text: Text, target: Text | None) -> TraceInput:
    tower = bundle.spec.head_tower
    if isinstance(text, str) and isinstance(target, str) and not bundle.spec.decodes:
        tokenizer = bundle._tokenizer("a text")
        both = tokenizer.encode(text, target)
        types = both.types if tower.types else None
        words = _second_reading(bundle, both.ids)
        return TraceInput(both.ids, of_encoding(both, tokenizer), types, target_tokens=words)
    ids, tokens = _encode(bundle, text)
    sides = list(bundle.spec.towers)
    if bundle.spec.inputs > 1:  # towers side by side: each has its own input
        if target is None:
            raise InputError(f"this model takes an input for each of {', '.join(sides)}; give both")
        return TraceInput(ids, tokens, None, *_encode(bundle, target))
    if target is None:
        return TraceInput(ids, tokens, target_tokens=_second_reading(bundle, ids))
    more, words = _encode(bundle, target, specials=False)
    return TraceInput([*ids, *more], [*tokens, *words], prompt=len(ids))


def _second_reading(bundle: BundleParts, ids: Sequence[int] | Tensor) -> list[Token] | None:
    """The tokens that the decoder reads, where it reads the text of the encoder."""
    if not isinstance(bundle.model, SameInputModel):
        return None
    read_1T = bundle.model.shifted(torch.as_tensor(ids)[None])
    return of_ids(read_1T[0].tolist(), bundle.tokenizer)


def _pair(bundle: BundleParts, text: Text, target: Text | None) -> TraceInput:
    """Text gets the special tokens of the checkpoint; ids are used as they are."""
    ids, tokens = _encode(bundle, text)
    if target is not None and not isinstance(target, str):
        fed, words = _encode(bundle, target)
        return TraceInput(ids, tokens, None, fed, words)
    settings = text_generator(bundle, {}).settings
    start = as_tuple(settings.decoder_start_token_id)
    if not start:
        raise InputError("the decoder's start token is unknown; pass ids for text and target")
    target_ids, words = _encode(bundle, target) if target is not None else ([], [])
    if target_ids and target_ids[-1] in settings.ends:
        target_ids, words = target_ids[:-1], words[:-1]
    return TraceInput(
        ids, tokens, None, [*start, *target_ids], [*of_ids(start, bundle.tokenizer), *words], len(start)
    )


def _encode(
    bundle: BundleParts, text: Text, *, specials: bool = True
) -> tuple[list[int] | Tensor, list[Token]]:
    only_ids = all(tower.embed.reads_ids for tower in bundle.spec.towers.values())
    if isinstance(text, Tensor) and text.is_floating_point() and not only_ids:  # frames: a vector per token
        frames = text[0] if text.ndim == 3 else text
        return frames, of_ids(range(len(frames)), None)
    if isinstance(text, str):
        tokenizer = bundle._tokenizer("a text")
        encoding = tokenizer.encode(text, specials=specials)
        ids, tokens = list(encoding.ids), of_encoding(encoding, tokenizer)
    else:
        numbers = text.flatten().tolist() if isinstance(text, Tensor) else text
        if not isinstance(numbers, Sequence) or not all(isinstance(i, int | float) for i in numbers):
            raise InputError(f"expected a text or a list of ids; given {quoted(text)}")
        ids = [int(i) for i in numbers]
        tokens = of_ids(ids, bundle.tokenizer)
    if not ids:
        raise InputError("the text is empty; give at least one token")
    return ids, tokens


def with_answer(bundle: BundleParts, fed: TraceInput, limit: int) -> TraceInput:
    """The input with what the model generates for it as its target."""
    return _append(bundle, fed, _generate(bundle, fed, limit, None).hypotheses[0])


def _generate(bundle: BundleParts, fed: TraceInput, limit: int, beams: int | None) -> GenerationResult:
    """What the model generates, best first, and every hypothesis that beam search considered."""
    given: dict[str, Any] = {"max_new_tokens": limit, "do_sample": False, "num_beams": beams or 1}
    given["num_return_sequences"] = beams or 1
    return text_generator(bundle, given).generate_batch([list(fed.ids)], 1, record=beams is not None)[0]


def _append(bundle: BundleParts, fed: TraceInput, answer: Hypothesis) -> TraceInput:
    """The input with the generated ids after it."""
    if fed.target_ids is not None:
        whole = [*fed.target_ids, *answer.text_ids]
        tokens = of_ids(whole, bundle.tokenizer)
        return TraceInput(fed.ids, fed.tokens, None, whole, tokens, prompt=len(fed.target_ids))
    whole = [*fed.ids, *answer.text_ids]
    tokens = [*fed.tokens, *of_ids(whole, bundle.tokenizer)[len(fed.ids) :]]
    return TraceInput(whole, tokens, prompt=len(fed.ids))


def _tree(bundle: BundleParts, fed: TraceInput, result: GenerationResult) -> Tree[Trace]:
    branches = [
        Branch(n.id, n.parent, n.step, of_ids([n.token], bundle.tokenizer)[0], n.logprob, n.score, n.fate)
        for n in result.tree
    ]

    def retrace(ids: list[int]) -> Trace:
        return trace_input(bundle, _append(bundle, fed, Hypothesis(ids, [], 0.0, "length")))

    scored = [(answer.text_ids, answer.score) for answer in result.hypotheses]
    return Tree(branches, scored, retrace)
