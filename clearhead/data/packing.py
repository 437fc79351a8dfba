"""Packing: documents of any length in, rows of one length out, with little room left over.

For causal language models. `documents` numbers the texts of a row, so that they do not see each other (-1 is
padding), and `labels` is the next token of the same document, or -100 where there is none.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..errors import InputError
from .order import Ints, order

NOTHING = -100  # where there is no label; what torch's cross-entropy leaves out


class Piece(NamedTuple):
    """Tokens `start` to `end` of one document."""

    document: int
    start: int
    end: int


class Packed(NamedTuple):
    """R rows of T tokens."""

    ids_RT: Ints
    labels_RT: Ints
    documents_RT: Ints

    @property
    def waste(self) -> float:
        """The share of padding."""
        return float((self.documents_RT < 0).mean()) if self.documents_RT.size else 0.0


def plan(
    lengths: Sequence[int],
    length: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    cut: Literal["long", "any"] = "long",
) -> list[list[Piece]]:
    """Which pieces stand in which row. A function of its arguments: the same plan whenever it is asked for.

    `cut="long"` cuts only documents that are longer than a row, and fits the rest in best first, longest
    first; `cut="any"` fills every row to its end, cutting the document that stands there.
    """
    if length < 1:
        raise InputError(f"rows of {length} tokens; expected at least 1")
    shuffled = [int(i) for i in order(seed, epoch, len(lengths), "documents")]
    rows = _poured(shuffled, lengths, length) if cut == "any" else _fitted(shuffled, lengths, length)
    return [rows[i] for i in order(seed, epoch, len(rows), "packed")]


def pack(
    documents: Sequence[Sequence[int]], rows: Sequence[Sequence[Piece]], length: int, pad: int
) -> Packed:
    """The rows of a plan, or some of them, as arrays. Every token but a document's first is a label once:
    the last token of a piece is asked for what follows it in the document.
    """
    shape = len(rows), length
    ids, labels, numbers = np.full(shape, pad), np.full(shape, NOTHING), np.full(shape, -1)
    for r, row in enumerate(rows):
        at = 0
        for number, (document, start, end) in enumerate(row):
            tokens, to = documents[document], at + end - start
            ids[r, at:to] = tokens[start:end]
            following = tokens[start + 1 : end + 1]
            labels[r, at : at + len(following)] = following
            numbers[r, at:to] = number
            at = to
    return Packed(ids.astype(np.int64), labels.astype(np.int64), numbers.astype(np.int64))


def _poured(shuffled: Sequence[int], lengths: Sequence[int], length: int) -> list[list[Piece]]:
    rows: list[list[Piece]] = []
    room = 0
    for document in shuffled:
        start = 0
        while start < lengths[document]:
            if not room:
                rows.append([])
                room = length
            end = min(start + room, lengths[document])
            rows[-1].append(Piece(document, start, end))
            room -= end - start
            start = end
    return rows


def _fitted(shuffled: Sequence[int], lengths: Sequence[int], length: int) -> list[list[Piece]]:
    """Best fit, decreasing: each piece goes where it leaves the least room."""
    pieces = [
        Piece(document, start, min(start + length, lengths[document]))
        for document in shuffled
        for start in range(0, lengths[document], length)
    ]
    pieces.sort(key=lambda piece: piece.start - piece.end)  # stable: equal lengths stay shuffled
    rows: list[list[Piece]] = []
    rooms: list[tuple[int, int]] = []  # room left, row; sorted
    for piece in pieces:
        size = piece.end - piece.start
        best = bisect_left(rooms, (size, 0))
        if best == len(rooms):
            rows.append([])
            room, row = length, len(rows) - 1
        else:
            room, row = rooms.pop(best)
        rows[row].append(piece)
        if room > size:
            insort(rooms, (room - size, row))
    return rows
