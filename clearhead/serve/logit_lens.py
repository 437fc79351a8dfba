"""The logit lens for the page: a window of positions in; the ten most likely tokens after every layer out.

Only requested positions are computed, and results are cached with the trace.
"""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..lens import Trace
from ..nn import Labels, Pooled
from .compute_queue import CachedTrace

TOP_TOKENS = 10  # tokens cached for each layer and position
Column = list[list[dict[str, Any]]]  # the most likely tokens of one position, by layer


def lens_window(cached: CachedTrace, start: int, count: int) -> dict[str, Any]:
    """The most likely token after every layer, for `count` positions from `start`."""
    positions = _positions(cached.trace)
    start = min(start, positions - 1)
    columns = _columns(cached, range(start, min(start + count, positions)))
    layers = len(columns[0])
    cells = [[column[layer][0] for column in columns] for layer in range(layers)]
    return {"layers": [str(i) for i in range(layers)], "positions": positions, "from": start, "cells": cells}


def lens_cell(cached: CachedTrace, layer: int, position: int) -> list[dict[str, Any]]:
    """The ten most likely tokens after one layer at one position."""
    positions = _positions(cached.trace)
    if position >= positions:
        raise InputError(f"there is no position {position}; there are {positions}, from 0")
    (column,) = _columns(cached, range(position, position + 1))
    if layer >= len(column):
        raise InputError(f"there is no layer {layer}; there are {len(column)}, from 0")
    return column[layer]


def _positions(trace: Trace) -> int:
    """The number of predictions: one per token, or one for the whole text."""
    head = trace.needs_model("the logit lens").spec.head
    return 1 if isinstance(head, Labels | Pooled) else len(trace.target_tokens or trace.tokens)


def _columns(cached: CachedTrace, positions: range) -> list[Column]:
    """The columns of these positions; those not in the cache are computed in one call."""
    missing = [i for i in positions if i not in cached.lens]
    if missing:
        first, last = missing[0], missing[-1] + 1
        lens = cached.trace.logit_lens(TOP_TOKENS, slice(first, last))
        for column, position in enumerate(range(first, last)):
            rows = zip(
                lens.ids[:, column].tolist(),
                (layer[column] for layer in lens.labels),
                lens.probabilities[:, column].tolist(),
                strict=True,
            )
            cached.lens[position] = [
                [{"id": i, "text": text, "p": p} for i, text, p in zip(*row, strict=True)] for row in rows
            ]
    return [cached.lens[i] for i in positions]
