"""Packing: documents of any length in, rows of one length out, with little padding.

For causal language models. `documents` numbers the texts of a row, so that they do not attend to each other
(-1 is padding), and `labels` is the next token of the same document, or -100 if there is none.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..errors import InputError
from .shuffling import IntArray, epoch_order

IGNORE_INDEX = -100  # the label of tokens that have none: the default ignore_index of torch's cross-entropy


class DocumentSlice(NamedTuple):
    """Tokens `start` to `end` of one document."""

    document: int
    start: int
    end: int


class Packed(NamedTuple):
    """R rows of T tokens."""

    ids_RT: IntArray
    labels_RT: IntArray
    documents_RT: IntArray

    @property
    def waste(self) -> float:
        """The share of padding."""
        return float((self.documents_RT < 0).mean()) if self.documents_RT.size else 0.0


def plan_rows(
    lengths: Sequence[int],
    length: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    cut: Literal["long", "any"] = "long",
) -> list[list[DocumentSlice]]:
    """Which slices of documents are in which row; a pure function of its arguments.

    `cut="long"` cuts only documents that are longer than a row (best fit, decreasing); `cut="any"` fills
    every row completely, cutting the document at its end.
    """
    if length < 1:
        raise InputError(f"rows of {length} tokens; expected at least 1")
    shuffled = [int(i) for i in epoch_order(seed, epoch, len(lengths), "documents")]
    rows = _fill_rows(shuffled, lengths, length) if cut == "any" else _best_fit(shuffled, lengths, length)
    return [rows[i] for i in epoch_order(seed, epoch, len(rows), "packed")]


def pack(
    documents: Sequence[Sequence[int]], rows: Sequence[Sequence[DocumentSlice]], length: int, pad: int
) -> Packed:
    """The rows of a plan, or some of them, as arrays. Every token but a document's first is a label once:
    the label of the last token of a slice is the token that follows it in the document.
    """
    shape = len(rows), length
    ids, labels, numbers = np.full(shape, pad), np.full(shape, IGNORE_INDEX), np.full(shape, -1)
    for r, row in enumerate(rows):
        at = 0
        for number, (document, start, end) in enumerate(row):
            tokens, stop = documents[document], at + end - start
            ids[r, at:stop] = tokens[start:end]
            next_tokens = tokens[start + 1 : end + 1]
            labels[r, at : at + len(next_tokens)] = next_tokens
            numbers[r, at:stop] = number
            at = stop
    return Packed(ids.astype(np.int64), labels.astype(np.int64), numbers.astype(np.int64))


def _fill_rows(shuffled: Sequence[int], lengths: Sequence[int], length: int) -> list[list[DocumentSlice]]:
    rows: list[list[DocumentSlice]] = []
    space = 0
    for document in shuffled:
        start = 0
        while start < lengths[document]:
            if not space:
                rows.append([])
                space = length
            end = min(start + space, lengths[document])
            rows[-1].append(DocumentSlice(document, start, end))
            space -= end - start
            start = end
    return rows


def _best_fit(shuffled: Sequence[int], lengths: Sequence[int], length: int) -> list[list[DocumentSlice]]:
    """Best fit, decreasing: each slice goes into the row where it leaves the least space."""
    pieces = [
        DocumentSlice(document, start, min(start + length, lengths[document]))
        for document in shuffled
        for start in range(0, lengths[document], length)
    ]
    pieces.sort(key=lambda piece: piece.start - piece.end)  # stable: equal lengths stay shuffled
    rows: list[list[DocumentSlice]] = []
    spaces: list[tuple[int, int]] = []  # space left, row; sorted
    for piece in pieces:
        size = piece.end - piece.start
        best = bisect_left(spaces, (size, 0))
        if best == len(spaces):
            rows.append([])
            space, row = length, len(rows) - 1
        else:
            space, row = spaces.pop(best)
        rows[row].append(piece)
        if space > size:
            insort(spaces, (space - size, row))
    return rows
