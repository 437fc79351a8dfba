"""Next-sentence prediction: documents as sentences in; pairs of texts with a label out.

As in BERT (Devlin 2018): half of the time the second text is what came next, half of the time it is from
another document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from ..errors import DataError
from .corrupt import Ids
from .shuffling import generator_for

# A blank line, or the end of a sentence: Latin ones need a space behind, Chinese ones none.
SENTENCE_END = re.compile(r"\n\s*\n|(?<=[.!?])\s+|(?<=[。！？])")


class SentencePair(NamedTuple):
    first: Ids
    second: Ids
    follows: bool


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the white space around them; its lines where nothing ends one."""
    parts = [sentence.strip() for sentence in SENTENCE_END.split(text) if sentence and sentence.strip()]
    return parts if len(parts) > 1 else [line.strip() for line in text.splitlines() if line.strip()]


def sentence_pairs(documents: Sequence[Sequence[Ids]], *, length: int, seed: int) -> list[SentencePair]:
    """Pairs of together at most `length` ids; every sentence is used once as it stands."""
    pieces = [list(_pieces(document, length)) for document in documents]
    pairs = [(d, i) for d, document in enumerate(pieces) for i in range(len(document))]
    if not pairs or len(documents) < 2:
        raise DataError(
            f"{len(documents)} texts with {len(pairs)} pairs of sentences; expected two texts or more, one "
            f"of them with two sentences"
        )
    examples = []
    for d, i in pairs:
        first, second = pieces[d][i]
        rng = generator_for(seed, "following", d, i)
        follows = rng.random() < 0.5
        if not follows:
            other, at = pairs[int(rng.random() * len(pairs))]
            while other == d and any(x != d for x, _ in pairs):
                other, at = pairs[int(rng.random() * len(pairs))]
            follows = other == d  # a single document has no other document to take a text from
            second = second if follows else pieces[other][at][1][: length - len(first)]
        examples.append(SentencePair(first, second, follows))
    return examples


def _pieces(document: Sequence[Ids], length: int) -> Iterator[tuple[Ids, Ids]]:
    """Neighbouring sentences, as many as fit, divided in the middle."""
    buffer: list[Ids] = []
    for sentence in document:
        truncated = sentence[: length // 2]  # two sentences always fit
        if buffer and sum(map(len, buffer)) + len(truncated) > length:
            yield from _split_in_half(buffer)
            buffer = []
        buffer.append(truncated)
    yield from _split_in_half(buffer)


def _split_in_half(buffer: list[Ids]) -> Iterator[tuple[Ids, Ids]]:
    if len(buffer) > 1:
        middle = len(buffer) // 2
        yield list(chain(*buffer[:middle])), list(chain(*buffer[middle:]))
