"""Prediction: a text in; labels, a tag per word, answers or missing words out, depending on the head.

A guess has a text, a probability, and the span of the input it is about. Input is never truncated: a text
that is longer than the model supports is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import InputError
from ..nn import TransformerModel
from ..text import Encoding, Piece, Tokenizer, unknown_note
from .parts import BundleParts

PredictionKind = Literal["labels", "tags", "answers", "words"]
LONGEST_ANSWER = 15  # tokens of an answer


@dataclass(frozen=True)
class Guess:
    """`text` is a label, a tag, an answer or a word; `start` and `end` are its span in the input."""

    text: str
    probability: float
    start: int
    end: int


@dataclass(frozen=True)
class Prediction:
    """Guesses, most likely first; tags: one per word, in the order of the text."""

    kind: PredictionKind
    text: str  # what `start` and `end` refer to: for answers, the context
    guesses: tuple[Guess, ...]
    notes: tuple[str, ...] = ()  # such as: words that are not in the vocabulary

    @property
    def entities(self) -> tuple[Guess, ...]:
        """Adjacent tags of one entity merged, without `B-` and `I-`; `O` is dropped."""
        return tuple(_entities(self.guesses))

    def to_dict(self) -> dict[str, Any]:
        plain = {"kind": self.kind, "text": self.text, "guesses": [asdict(guess) for guess in self.guesses]}
        plain |= {"notes": list(self.notes)} if self.notes else {}
        return plain | ({"entities": [asdict(e) for e in self.entities]} if self.kind == "tags" else {})


@torch.no_grad()
def predict(bundle: BundleParts, text: str, context: str | None = None, *, top: int = 5) -> Prediction:
    """`context` is the text to find an answer in, or the second text of a pair to classify."""
    if top < 1:
        raise InputError(f"top is {top}, expected 1 or more")
    model, tokenizer = _able(bundle)
    if not text:
        raise InputError("the text is empty; give at least a word")
    if bundle.task == "span" and not context:
        raise InputError("this model finds answers in a text; give the text to look in as context")
    if context is not None and bundle.task in ("tags", "tokens"):
        raise InputError("this model reads one text at a time; leave the context out")
    encoding = tokenizer.encode(text, context)
    # A model with both of BERT's pre-training heads classifies a pair, and fills in the words of one text.
    second = bundle.task == "pretrain" and context is not None
    logits = _logits(model, encoding, second=second)
    notes = unknown_note([encoding], tokenizer.unk and tokenizer.unk.id)
    if bundle.task == "tags":
        return Prediction("tags", text, tuple(_tags(logits, encoding, _names(bundle, logits))), notes)
    if bundle.task == "span":
        assert context is not None
        return Prediction("answers", context, tuple(_answers(logits, encoding.tokens, context, top)), notes)
    if bundle.task in ("tokens", "pretrain") and not second:
        return Prediction("words", text, tuple(_words(logits, encoding, tokenizer, top)), notes)
    labels = _labels(logits, _names(bundle, logits), bundle.config, len(text))
    return Prediction("labels", text, tuple(labels[:top]), notes)


def _able(bundle: BundleParts) -> tuple[TransformerModel, Tokenizer]:
    """The model and its tokenizer, or an error that says what this model can do instead."""
    model = bundle.model
    if model.spec.is_encoder_decoder or model.spec.generates:
        raise InputError("this model generates text and predicts no labels: clearhead generate does that")
    if bundle.task == "hidden":
        raise InputError("this model has no head: clearhead embed makes vectors of texts with it")
    if bundle.tokenizer is None:
        raise InputError(
            "predict needs a tokenizer, and this model came without one (tokenizer.json); pass ids"
        )
    return model, bundle.tokenizer


def _logits(model: TransformerModel, encoding: Encoding, *, second: bool) -> Tensor:
    """(T, C), or (C,) if the whole text is classified, as by a second head."""
    device = next(model.parameters()).device
    ids = torch.tensor([encoding.ids], device=device)
    embed = model.spec.head_tower.embed
    two = any(encoding.types) and getattr(embed, "types", 0) > 1
    types = torch.tensor([encoding.types], device=device) if two else None
    states = model.states(ids, types=types)
    answer = model.read_second(states) if second else model.read(states)
    return answer[0].float().cpu()


def _names(bundle: BundleParts, logits: Tensor) -> list[str]:
    if bundle.task in ("pair", "pretrain"):
        return ["follows", "does not follow"]
    return [bundle.labels.get(i, f"LABEL_{i}") for i in range(logits.shape[-1])]


def _labels(logits_C: Tensor, names: list[str], config: dict[str, Any], end: int) -> list[Guess]:
    """All labels, most likely first: a softmax, or independent ones if the checkpoint is multi-label."""
    independent = config.get("problem_type") == "multi_label_classification" or len(names) == 1
    probabilities = logits_C.sigmoid() if independent else logits_C.softmax(-1)
    guesses = [Guess(name, p, 0, end) for name, p in zip(names, probabilities.tolist(), strict=True)]
    return sorted(guesses, key=lambda guess: -guess.probability)


def _tags(logits_TC: Tensor, encoding: Encoding, names: list[str]) -> Iterable[Guess]:
    """One for each word, from its first token: that is where words are tagged in training."""
    shares, best = logits_TC.softmax(-1).max(-1)
    pieces = encoding.tokens
    real = [i for i, piece in enumerate(pieces) if not piece.special]
    for _, group in groupby(real, key=lambda i: i if (word := encoding.words[i]) is None else -1 - word):
        first, *rest = group
        end = pieces[rest[-1] if rest else first].end
        yield Guess(names[int(best[first])], float(shares[first]), pieces[first].start, end)


def _entities(tags: Sequence[Guess]) -> Iterable[Guess]:
    groups: list[list[Guess]] = []
    for tag in tags:
        begins = tag.text.startswith("B-")
        if groups and _bare(groups[-1][-1].text) == _bare(tag.text) and not begins:
            groups[-1].append(tag)
        else:
            groups.append([tag])
    for group in groups:
        if group[0].text != "O":
            mean = sum(tag.probability for tag in group) / len(group)
            yield Guess(_bare(group[0].text), mean, group[0].start, group[-1].end)


def _bare(tag: str) -> str:
    return tag[2:] if tag[:2] in ("B-", "I-") else tag


def _answers(logits_T2: Tensor, pieces: Sequence[Piece], context: str, top: int) -> Iterable[Guess]:
    """Spans of the context, ranked by the product of the probabilities of their two ends."""
    inside = torch.tensor([piece.side == 1 and not piece.special for piece in pieces])
    ends_T2 = logits_T2.masked_fill(~inside[:, None], float("-inf")).softmax(0)
    pairs_TT = (ends_T2[:, 0][:, None] * ends_T2[:, 1][None]).triu().tril(LONGEST_ANSWER - 1)
    for index in pairs_TT.flatten().topk(min(top, pairs_TT.numel())).indices.tolist():
        first, last = divmod(index, len(pieces))
        start, end = pieces[first].start, pieces[last].end
        if pairs_TT[first, last] > 0:
            yield Guess(context[start:end], float(pairs_TT[first, last]), start, end)


def _words(logits_TV: Tensor, encoding: Encoding, tokenizer: Tokenizer, top: int) -> Iterable[Guess]:
    """For each mask token in turn, the most likely words."""
    if tokenizer.mask is None:
        raise InputError("this tokenizer has no mask token, so no word can be left out")
    places = [i for i, token in enumerate(encoding.ids) if token == tokenizer.mask.id]
    if not places:
        raise InputError(f"no word is left out; write {tokenizer.mask.text} where one is missing")
    for i in places:
        shares, tokens = logits_TV[i].softmax(-1).topk(min(top, logits_TV.shape[-1]))
        piece = encoding.tokens[i]
        for share, token in zip(shares.tolist(), tokens.tolist(), strict=True):
            yield Guess(tokenizer.decode([token]), share, piece.start, piece.end)
