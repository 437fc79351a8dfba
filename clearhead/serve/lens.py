"""The logit lens for the page: a window of positions in; the ten likeliest words after every layer out.

Only positions that somebody asked for are computed, and what was computed once is kept with its trace.
"""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..lens.trace import Trace
from ..nn.heads import Labels, Pooled
from .desk import Held

TOP = 10  # words kept for each layer and position
Column = list[list[dict[str, Any]]]  # of one position: for every layer its likeliest words


def lens_window(held: Held, start: int, count: int) -> dict[str, Any]:
    """The likeliest word after every layer, for `count` positions from `start`."""
    positions = _positions(held.trace)
    start = min(start, positions - 1)
    columns = _columns(held, range(start, min(start + count, positions)))
    layers = len(columns[0])
    cells = [[column[layer][0] for column in columns] for layer in range(layers)]
    return {"layers": [str(i) for i in range(layers)], "positions": positions, "from": start, "cells": cells}


def lens_cell(held: Held, layer: int, position: int) -> list[dict[str, Any]]:
    """The ten likeliest words of one cell."""
    positions = _positions(held.trace)
    if position >= positions:
        raise InputError(f"there is no position {position}; there are {positions}, from 0")
    (column,) = _columns(held, range(position, position + 1))
    if layer >= len(column):
        raise InputError(f"there is no layer {layer}; there are {len(column)}, from 0")
    return column[layer]


def _positions(trace: Trace) -> int:
    """How many answers there are: one for each token, or one for the whole text."""
    head = trace.needs_model("the logit lens").spec.head
    return 1 if isinstance(head, Labels | Pooled) else len(trace.target_tokens or trace.tokens)


def _columns(held: Held, wanted: range) -> list[Column]:
    missing = [i for i in wanted if i not in held.lens]
    if missing:
        first, last = missing[0], missing[-1] + 1
        guesses = held.trace.logit_lens(TOP, slice(first, last))
        for at, position in enumerate(range(first, last)):
            rows = zip(
                guesses.ids[:, at].tolist(),
                (layer[at] for layer in guesses.labels),
                guesses.probabilities[:, at].tolist(),
                strict=True,
            )
            held.lens[position] = [
                [{"id": i, "text": text, "p": p} for i, text, p in zip(*row, strict=True)] for row in rows
            ]
    return [held.lens[i] for i in wanted]
