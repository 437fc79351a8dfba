"""Readable tokens: an encoding or ids in; one token per id, with a label for display, out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..text import Encoding, Piece, Tokenizer

PIECE_MARKS = "①②③④⑤⑥⑦⑧⑨"  # for characters of several tokens: 你①, 你②, 你③
REPLACEMENT = "\ufffd"  # what part of a character decodes to
VISIBLE = {"\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣"}


class Token(NamedTuple):
    """`text` is `input[start:end]`, or the name of a special token; `label` is its short form for display."""

    text: str
    id: int
    start: int
    end: int
    special: bool
    label: str


def of_encoding(encoding: Encoding, tokenizer: Tokenizer) -> list[Token]:
    """The tokens of an encoded text. Tokens outside the vocabulary are labelled [UNK]."""
    unk = tokenizer.unk

    def label(p: Piece) -> str:
        is_unknown = unk is not None and p.id == unk.id
        return unk.text if unk is not None and is_unknown else _label(p.text, p.part, p.parts)

    return [Token(p.text, p.id, p.start, p.end, p.special, label(p)) for p in encoding.tokens]


def of_ids(ids: Sequence[int], tokenizer: Tokenizer | None) -> list[Token]:
    """The tokens of ids without a text: generated ids, or any ids if there is no tokenizer.

    The tokens of one character cannot be decoded alone; they are decoded together and share its text.
    """
    if tokenizer is None:
        return [Token(f"#{i}", i, 0, 0, special=False, label=f"#{i}") for i in ids]
    tokens: list[Token] = []
    first, start = 0, 0
    while first < len(ids):
        if ids[first] in tokenizer.specials:
            name = tokenizer.decode([ids[first]], specials=True)
            tokens.append(Token(name, ids[first], start, start, special=True, label=name))
            first += 1
            continue
        last = _end_of_characters(ids, first, tokenizer)
        text = _decode_span(ids, first, last, tokenizer)
        for i in range(first, last):
            label = _label(text, i - first + 1, last - first)
            tokens.append(Token(text, ids[i], start, start + len(text), special=False, label=label))
        first, start = last, start + len(text)
    return tokens


def _end_of_characters(ids: Sequence[int], first: int, tokenizer: Tokenizer) -> int:
    """The end of the shortest span from `first` that decodes to whole characters; an invalid byte is one."""
    for last in range(first + 1, min(first + 5, len(ids) + 1)):
        if REPLACEMENT not in tokenizer.decode(ids[first:last]):
            return last
    return first + 1


def _decode_span(ids: Sequence[int], first: int, last: int, tokenizer: Tokenizer) -> str:
    """The text of a span. It is decoded with the token before it: some tokenizers drop a leading space."""
    before = max(first - 1, 0)
    if before == first or ids[before] in tokenizer.specials:
        return tokenizer.decode(ids[first:last])
    lead, both = tokenizer.decode(ids[before:first]), tokenizer.decode(ids[before:last])
    return both[len(lead) :] if both.startswith(lead) else tokenizer.decode(ids[first:last])


def _label(text: str, part: int, parts: int) -> str:
    shown = text.strip()
    if not shown:
        shown = "".join(VISIBLE.get(letter, letter) for letter in text) or "·"
    return shown + (PIECE_MARKS[min(part, len(PIECE_MARKS)) - 1] if parts > 1 else "")
