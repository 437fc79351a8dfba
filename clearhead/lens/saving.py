"""Saving a trace: a file name in; a picture, a page or the trace itself out, by its suffix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from .picture import heat_map

if TYPE_CHECKING:
    from .record import Kind
    from .trace import Trace


def save(
    trace: Trace, path: str | Path, *, kind: Kind | None = None, layer: int = -1, head: int | None = None
) -> Path:
    path = Path(path)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"a picture is .png, .svg or .pdf; given {path.name}")
    kind = kind or trace.kinds[-1]
    weights = trace.attention(kind, layer, head)
    rows, columns = trace.sides(kind)
    heat_map(
        (weights if head is not None else weights.mean(0)).tolist(),
        [token.label for token in rows],
        [token.label for token in columns],
        path,
    )
    return path
