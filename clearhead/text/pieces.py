"""Pieces: what a tokenizer did to a text in, the span of that text behind each id out.

Vocabulary strings are not readable: `Ġ` for a space, `ä½ł` for 你, `<0xE4>` for a third of it. So a
piece is labelled with the characters it covers. Where several pieces cover one character they share it and
are numbered, as in 你①②③, and no half character is ever shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tokenizers import Encoding as Raw

BLANKS = frozenset("▁Ġ")  # how vocabularies spell a space


class Piece(NamedTuple):
    """`text` is `input[start:end]`; a special token that the input does not contain has no width."""

    text: str
    start: int
    end: int
    id: int
    special: bool
    part: int = 1  # the first of...
    parts: int = 1  # ...how many pieces that share these characters
    side: int | None = 0  # 0 the text, 1 its pair, None neither: a special token put around them


class Encoding:
    """The ids of a text, with the segment types some models read and the pieces people read."""

    def __init__(
        self, raw: Raw, texts: tuple[str, ...], is_special: Callable[[int, str], bool], *, cut: int = 0
    ) -> None:
        self.ids: list[int] = raw.ids
        self.types: list[int] = raw.type_ids
        self.words: list[int | None] = raw.word_ids  # which word of its text each id is a part of
        self.texts, self.cut = texts, cut  # how many tokens were cut off
        self._raw, self._is_special = raw, is_special

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoding({' '.join(repr(piece.text) for piece in self.tokens)})"

    @cached_property
    def tokens(self) -> list[Piece]:
        """One piece per id. Computed on access: training reads only ids, by the million."""
        return list(self._pieces())

    def _pieces(self) -> Iterator[Piece]:
        ids, names, sides = self.ids, self._raw.tokens, self._raw.sequence_ids
        spans = list(map(self._span, names, self._raw.offsets, sides))
        for first, last in _overlapping_runs(spans, sides):
            side = sides[first]
            if side is None:
                yield Piece(names[first], 0, 0, ids[first], special=True, side=None)
                continue
            start = min(start for start, _ in spans[first:last])
            end = max(end for _, end in spans[first:last])
            text = self.texts[side][start:end]
            for i in range(first, last):
                special = self._is_special(ids[i], text)
                yield Piece(text, start, end, ids[i], special, i - first + 1, last - first, side)

    def _span(self, name: str, span: tuple[int, int], side: int | None) -> tuple[int, int]:
        """The span of a token in its text. A space that only the tokenizer added has no width."""
        start, end = span
        if side is not None and BLANKS.issuperset(name):
            covered = self.texts[side][start:end]
            if not covered.isspace() and covered != name:
                return start, start  # the library lends it the character that follows
        return span


def unknown_note(encodings: Iterable[Encoding], unk: int | None) -> tuple[str, ...]:
    """One line if the vocabulary lacks part of what was typed: the model sees the unknown token there."""
    if unk is None:
        return ()
    pieces = [piece for encoding in encodings for piece in encoding.tokens if piece.side is not None]
    unknown = [piece.text.strip() for piece in pieces if piece.id == unk and not piece.special]
    if not unknown:
        return ()
    return (unknown_words(unknown, len(pieces)),)


def unknown_words(unknown: Sequence[str], count: int) -> str:
    """The message, for `count` tokens in all."""
    shown = ", ".join(dict.fromkeys(unknown))
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"{len(unknown)} of {count} tokens are unknown to this model's vocabulary: {shown}"


def _overlapping_runs(spans: list[tuple[int, int]], sides: list[int | None]) -> Iterator[tuple[int, int]]:
    """Runs of tokens that overlap. A token may hold the end of one character and the start of the next."""
    first = 0
    while first < len(spans):
        last, end = first + 1, spans[first][1]
        while last < len(spans) and sides[last] == sides[first] is not None and _overlaps(spans[last], end):
            end = max(end, spans[last][1])
            last += 1
        yield first, last
        first = last


def _overlaps(span: tuple[int, int], end: int) -> bool:
    return span[0] < end and span[0] < span[1]
