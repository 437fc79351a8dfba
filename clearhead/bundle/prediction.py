"""Prediction: texts in; labels, scores, tags, answers, choices or missing words out, depending on the head.

A question may become several rows of a batch: one for each choice, or for each part of a long context. Rows
of similar length share a batch. Labels follow the text-classification pipeline of transformers: a softmax;
independent probabilities if `problem_type` says multi_label_classification or there is one label; plain
numbers if it says regression.
Shape suffixes: B rows, T tokens, C classes, V vocabulary, M mask tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..engine import drop_stale_products
from ..errors import InputError, quoted
from ..nn import TransformerModel
from ..text import Encoding, Tokenizer, as_texts, check_texts, unknown_note
from .batching import length_batches, pad_rows
from .guesses import (
    Prediction,
    answer_guesses,
    best_answers,
    label_guesses,
    mask_positions,
    tag_guesses,
    word_guesses,
)
from .parts import BundleParts

TRUNCATED = ("labels", "pair", "choice")  # heads that read a text as a whole: its end may be cut off
STRIDE = 128  # tokens that two parts of a long context have in common


@dataclass(frozen=True)
class PredictionInput:
    text: str
    context: str | None = None
    choices: tuple[str, ...] = ()


def questions(
    bundle: BundleParts,
    text: str | Sequence[str],
    context: str | Sequence[str] | None,
    choices: Sequence[str] | Sequence[Sequence[str]] | None,
) -> list[PredictionInput]:
    """The arguments of `predict`, checked against what the head needs."""
    texts = as_texts(text)
    count = len(texts)
    contexts = [context] * count if context is None or isinstance(context, str) else as_texts(context)
    if len(contexts) != count:
        raise InputError(f"{count} texts and {len(contexts)} contexts; expected as many, or one for all")
    lists = [choices] if isinstance(text, str) else [None] * count if choices is None else list(choices)
    if len(lists) != count:
        raise InputError(f"{count} texts and {len(lists)} lists of choices; expected as many of each")
    return [_question(bundle, *each) for each in zip(texts, contexts, lists, strict=True)]


def _question(bundle: BundleParts, text: str, context: str | None, choices: object) -> PredictionInput:
    check_texts([text] if context is None else [text, context])
    if not text:
        raise InputError("the text is empty; give at least a word")
    if bundle.task == "span" and not context:
        raise InputError("this model finds answers in a text; give the text to look in as context")
    if context is not None and bundle.task in ("tags", "tokens"):
        raise InputError("this model reads one text at a time; leave the context out")
    if bundle.task != "choice":
        if choices is not None:
            raise InputError("choices are for models with a multiple-choice head; leave them out")
        return PredictionInput(text, context)
    if isinstance(choices, str) or not isinstance(choices, Sequence) or len(choices) < 2:
        raise InputError(
            f"this model ranks choices; give choices=[...], two or more; given {quoted(choices)}"
        )
    check_texts(choices)
    return PredictionInput(text, context, tuple(choices))


@torch.no_grad()
def predict(
    bundle: BundleParts,
    inputs: Sequence[PredictionInput],
    *,
    top: int = 5,
    batch_size: int | None = None,
    truncate: bool = False,
) -> list[Prediction]:
    if top < 1:
        raise InputError(f"top is {top}, expected 1 or more")
    model, tokenizer = _able(bundle)
    drop_stale_products(model)
    limit = reading_limit(bundle, tokenizer)
    groups = _encode(bundle, tokenizer, inputs, limit, truncate=truncate)
    # A model with both of BERT's pre-training heads classifies a pair, and fills in the words of one text.
    second = bundle.task == "pretrain" and any(each.context is not None for each in inputs)
    if bundle.task in ("tokens", "pretrain") and not second:
        for each, (encoding,) in zip(inputs, groups, strict=True):
            _check_mask(each.text, encoding, tokenizer)
    rows = [row for group in groups for row in group]
    words = bundle.task in ("tokens", "pretrain") and not second
    found = iter(_outputs(model, rows, tokenizer, batch_size, second=second, words=words))
    unk = tokenizer.unk and tokenizer.unk.id
    predictions = []
    for each, group in zip(inputs, groups, strict=True):
        outputs = [next(found) for _ in group]
        notes = (*unknown_note(group[:1], unk), *_cut_note(group, limit))
        predictions.append(_prediction(bundle, tokenizer, each, group, outputs, notes, top, second=second))
    return predictions


def reading_limit(bundle: BundleParts, tokenizer: Tokenizer) -> int | None:
    """The longest text in tokens that the model has positions for, or that its tokenizer allows."""
    limits = (bundle.spec.max_length, tokenizer.model_max_length)
    return min((limit for limit in limits if limit is not None), default=None)


def _encode(
    bundle: BundleParts,
    tokenizer: Tokenizer,
    inputs: Sequence[PredictionInput],
    limit: int | None,
    *,
    truncate: bool,
) -> list[list[Encoding]]:
    """The rows of each question."""
    firsts = [question_of_choice(each.text, each.context) if each.choices else each.text for each in inputs]
    longest = limit if truncate and bundle.task in TRUNCATED else None
    groups = []
    if all(each.context is None and not each.choices for each in inputs):
        groups = [[row] for row in tokenizer.encode_batch(firsts, max_length=longest)]
    else:
        for first, each in zip(firsts, inputs, strict=True):
            seconds = each.choices or (each.context,)
            groups.append([tokenizer.encode(first, other, max_length=longest) for other in seconds])
    hard = bundle.spec.max_length
    for number, (each, group) in enumerate(zip(inputs, groups, strict=True)):
        if hard is not None and max(map(len, group)) > hard:
            if bundle.task != "span" or each.context is None:
                raise _too_long(bundle, max(map(len, group)), hard, number, len(inputs))
            group[:] = tokenizer.encode_windows(each.text, each.context, max_length=hard, stride=STRIDE)
    return groups


def question_of_choice(question: str, context: str | None) -> str:
    """The text beside every choice, in training and in prediction."""
    return question if context is None else f"{context}\n{question}"


def _too_long(bundle: BundleParts, length: int, limit: int, number: int, count: int) -> InputError:
    which = "the text" if count == 1 else f"text {number + 1}"
    way = "truncate=True cuts it" if bundle.task in TRUNCATED else "split it, since every word counts here"
    return InputError(f"{which} is {length} tokens, longer than the {limit} learned positions; {way}")


def _check_mask(text: str, encoding: Encoding, tokenizer: Tokenizer) -> None:
    if tokenizer.mask is None:
        raise InputError("this tokenizer has no mask token, so no word can be left out")
    if not mask_positions(encoding, tokenizer):
        raise InputError(
            f"no word is left out; write {tokenizer.mask.text} where one is missing in {quoted(text)}"
        )


def _cut_note(group: Sequence[Encoding], limit: int | None) -> tuple[str, ...]:
    cut = max(row.cut for row in group)
    return (f"the text has {cut:,} tokens more than the {limit:,} that were read",) if cut else ()


def _able(bundle: BundleParts) -> tuple[TransformerModel, Tokenizer]:
    """The model and its tokenizer, or an error that says what this model can do instead."""
    model = bundle.model
    if model.spec.is_encoder_decoder or model.spec.generates:
        raise InputError("this model generates text and predicts no labels: clearhead generate does that")
    if model.spec.head is None:
        raise InputError("this model has no head: clearhead embed makes vectors of texts with it")
    return model, bundle._tokenizer("predict")


def _outputs(
    model: TransformerModel,
    rows: Sequence[Encoding],
    tokenizer: Tokenizer,
    batch_size: int | None,
    *,
    second: bool,
    words: bool,
) -> list[Tensor]:
    """For each row (T, C), or (C,) if the whole text is classified; of missing words (M, V)."""
    outputs: list[Tensor] = [torch.empty(0)] * len(rows)
    device = next(model.parameters()).device
    has_types = model.spec.head_tower.types > 1
    for batch in length_batches([len(row) for row in rows], batch_size):
        ids_BT, mask_BT = pad_rows([rows[i].ids for i in batch], device)
        typed = has_types and any(any(rows[i].types) for i in batch)
        types_BT = pad_rows([rows[i].types for i in batch], device)[0] if typed else None
        states = model.states(ids_BT, mask_BT, types=types_BT)
        answers = model.read_second(states) if second else model.read(states)
        for i, answer in zip(batch, answers.unbind(), strict=True):
            if words:  # all others would be a gigabyte for a few thousand texts
                answer = answer[mask_positions(rows[i], tokenizer)]
            elif answer.ndim == 2:
                answer = answer[: len(rows[i])]
            outputs[i] = answer.float().cpu()
    return outputs


def _prediction(
    bundle: BundleParts,
    tokenizer: Tokenizer,
    each: PredictionInput,
    group: Sequence[Encoding],
    outputs: Sequence[Tensor],
    notes: tuple[str, ...],
    top: int,
    *,
    second: bool,
) -> Prediction:
    text, end, cut = each.text, len(each.text), max(row.cut for row in group)
    if bundle.task == "choice":
        ranked = label_guesses(torch.cat(list(outputs)), each.choices, end, independent=False)
        return Prediction("choice", text, tuple(ranked[:top]), notes, cut=cut)
    if bundle.task == "span":
        context = each.context or ""
        every = [
            guess
            for window, output in zip(group, outputs, strict=True)
            for guess in answer_guesses(output, window, context, top)
        ]
        return Prediction("answers", context, tuple(best_answers(every, top)), notes)
    (encoding,), (output,) = group, outputs
    if bundle.task == "replaced":  # one logit per token: that of the first of two classes is 0
        output = torch.cat([torch.zeros_like(output), output], dim=-1)
        guesses = tag_guesses(output, encoding, ["original", "replaced"])
        return Prediction("tags", text, tuple(guesses), notes)
    if bundle.task == "tags":
        return Prediction("tags", text, tuple(tag_guesses(output, encoding, _names(bundle, output))), notes)
    if bundle.task in ("tokens", "pretrain") and not second:
        return Prediction("words", text, tuple(word_guesses(output, encoding, tokenizer, top)), notes)
    names, kind = _names(bundle, output), bundle.config.get("problem_type")
    if kind == "regression" and bundle.task == "labels":
        scores = dict(zip(names, output.tolist(), strict=True))
        return Prediction("score", text, (), notes, scores, cut=cut)
    independent = kind == "multi_label_classification" or len(names) == 1
    labels = label_guesses(output, names, end, independent=independent)
    return Prediction("labels", text, tuple(labels[:top]), notes, cut=cut)


def _names(bundle: BundleParts, logits: Tensor) -> list[str]:
    if bundle.task in ("pair", "pretrain"):
        return ["follows", "does not follow"]
    return [bundle.labels.get(i, f"LABEL_{i}") for i in range(logits.shape[-1])]
