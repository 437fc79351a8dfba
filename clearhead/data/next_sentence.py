"""Pairs of texts that follow each other, or do not: documents in sentences in; pairs with the truth out.

As BERT was given them (Devlin 2018): half of the time the second text is what came next, half of the time it
is from another document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from ..errors import DataError
from .shuffling import generator_for

TokenIds = list[int]
# A blank line, or the end of a sentence: Latin ones need a space behind, Chinese ones none.
SENTENCE_END = re.compile(r"\n\s*\n|(?<=[.!?])\s+|(?<=[。！？])")


class SentencePair(NamedTuple):
    first: TokenIds
    second: TokenIds
    follows: bool


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the white space around them; its lines where nothing ends one."""
    found = [sentence.strip() for sentence in SENTENCE_END.split(text) if sentence and sentence.strip()]
    return found if len(found) > 1 else [line.strip() for line in text.splitlines() if line.strip()]


def sentence_pairs(documents: Sequence[Sequence[TokenIds]], *, length: int, seed: int) -> list[SentencePair]:
    """Pairs of together at most `length` ids; every sentence is used once as it stands."""
    pieces = [list(_pieces(document, length)) for document in documents]
    pairs = [(d, i) for d, document in enumerate(pieces) for i in range(len(document))]
    if not pairs or len(documents) < 2:
        raise DataError(
            f"{len(documents)} texts with {len(pairs)} pairs of sentences; expected two texts or more, one "
            f"of them with two sentences"
        )
    made = []
    for d, i in pairs:
        first, second = pieces[d][i]
        chance = generator_for(seed, "following", d, i)
        follows = chance.random() < 0.5
        if not follows:
            other, at = pairs[int(chance.random() * len(pairs))]
            while other == d and any(x != d for x, _ in pairs):
                other, at = pairs[int(chance.random() * len(pairs))]
            follows = other == d  # one document alone has no stranger to offer
            second = second if follows else pieces[other][at][1][: length - len(first)]
        made.append(SentencePair(first, second, follows))
    return made


def _pieces(document: Sequence[TokenIds], length: int) -> Iterator[tuple[TokenIds, TokenIds]]:
    """Neighbouring sentences, as many as fit, divided in the middle."""
    held: list[TokenIds] = []
    for sentence in document:
        cut = sentence[: length // 2]  # two sentences always fit
        if held and sum(map(len, held)) + len(cut) > length:
            yield from _halves(held)
            held = []
        held.append(cut)
    yield from _halves(held)


def _halves(held: list[TokenIds]) -> Iterator[tuple[TokenIds, TokenIds]]:
    if len(held) > 1:
        middle = len(held) // 2
        yield list(chain(*held[:middle])), list(chain(*held[middle:]))
