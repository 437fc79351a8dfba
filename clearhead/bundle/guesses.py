"""Guesses: the output of a head in; labels, a tag per word, answers or missing words out.

A guess has a text, a probability, and the span of the input it is about; a regression has numbers instead.
Shape suffixes: T tokens, C classes, V vocabulary, M mask tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor

from ..text import Encoding, Tokenizer

PredictionKind = Literal["labels", "score", "tags", "answers", "words", "choice"]
LONGEST_ANSWER = 15  # tokens of an answer


@dataclass(frozen=True)
class Guess:
    """`text` is a label, a tag, an answer, a choice or a word; `start` and `end` its span in the input."""

    text: str
    probability: float
    start: int
    end: int


@dataclass(frozen=True)
class Prediction:
    """Guesses, most likely first; tags: one per word, in the order of the text. A regression has scores."""

    kind: PredictionKind
    text: str  # what `start` and `end` refer to: for answers, the context
    guesses: tuple[Guess, ...]
    notes: tuple[str, ...] = ()  # such as: words that are not in the vocabulary
    scores: Mapping[str, float] = field(default_factory=dict)  # of a regression, by the name of the output
    cut: int = 0  # tokens that were cut off, because the model reads no more

    @property
    def score(self) -> float | None:
        """The number of a regression with one output."""
        return next(iter(self.scores.values())) if len(self.scores) == 1 else None

    @property
    def entities(self) -> tuple[Guess, ...]:
        """Adjacent tags of one entity merged, without `B-` and `I-`; `O` is dropped."""
        return tuple(_entities(self.guesses))

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "kind": self.kind,
            "text": self.text,
            "guesses": [asdict(guess) for guess in self.guesses],
        }
        plain |= {"notes": list(self.notes)} if self.notes else {}
        plain |= {"scores": dict(self.scores)} if self.scores else {}
        plain |= {"score": self.score} if self.score is not None else {}
        return plain | ({"entities": [asdict(e) for e in self.entities]} if self.kind == "tags" else {})


def label_guesses(logits_C: Tensor, names: Sequence[str], end: int, *, independent: bool) -> list[Guess]:
    """All labels, most likely first: probabilities that sum to one, or independent ones."""
    probabilities = logits_C.sigmoid() if independent else logits_C.softmax(-1)
    guesses = [Guess(name, p, 0, end) for name, p in zip(names, probabilities.tolist(), strict=True)]
    return sorted(guesses, key=lambda guess: -guess.probability)


def tag_guesses(logits_TC: Tensor, encoding: Encoding, names: list[str]) -> Iterable[Guess]:
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


def answer_guesses(logits_T2: Tensor, window: Encoding, context: str, top: int) -> Iterable[Guess]:
    """Spans of the context in this window, ranked by the product of the probabilities of their two ends."""
    pieces = window.tokens
    inside = torch.tensor([piece.side == 1 and not piece.special for piece in pieces])
    ends_T2 = logits_T2.masked_fill(~inside[:, None], float("-inf")).softmax(0)
    pairs_TT = (ends_T2[:, 0][:, None] * ends_T2[:, 1][None]).triu().tril(LONGEST_ANSWER - 1)
    for index in pairs_TT.flatten().topk(min(top, pairs_TT.numel())).indices.tolist():
        first, last = divmod(index, len(pieces))
        start, end = pieces[first].start, pieces[last].end
        if pairs_TT[first, last] > 0:
            yield Guess(context[start:end], float(pairs_TT[first, last]), start, end)


def best_answers(guesses: Iterable[Guess], top: int) -> list[Guess]:
    """The best guesses of all windows; a span that several windows have counts once, at its best."""
    best: dict[tuple[int, int], Guess] = {}
    for guess in sorted(guesses, key=lambda guess: -guess.probability):
        best.setdefault((guess.start, guess.end), guess)
    return list(best.values())[:top]


def mask_positions(encoding: Encoding, tokenizer: Tokenizer) -> list[int]:
    """Where words are missing."""
    return [i for i, token in enumerate(encoding.ids) if tokenizer.mask and token == tokenizer.mask.id]


def word_guesses(logits_MV: Tensor, encoding: Encoding, tokenizer: Tokenizer, top: int) -> Iterable[Guess]:
    """For each mask token in turn, the most likely words."""
    for logits_V, i in zip(logits_MV, mask_positions(encoding, tokenizer), strict=True):
        shares, tokens = logits_V.softmax(-1).topk(min(top, len(logits_V)))
        piece = encoding.tokens[i]
        for share, token in zip(shares.tolist(), tokens.tolist(), strict=True):
            yield Guess(tokenizer.decode([token]), share, piece.start, piece.end)
