"""Files of a trace: a head or the whole in; CSV, HTML or safetensors to keep, out."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from typing import Literal

from starlette.responses import Response

from ..lens.record import Kind
from ..lens.trace import Trace

TYPES = {"csv": "text/csv; charset=utf-8", "html": "text/html", "safetensors": "application/octet-stream"}


def export(
    trace: Trace, ending: Literal["csv", "html", "safetensors"], kind: Kind, layer: int, head: int
) -> Response:
    if ending == "csv":
        content = _csv(trace, kind, layer, head)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = trace.save(Path(folder) / f"trace.{ending}", kind=kind, layer=layer, head=head)
            content = path.read_bytes()
    disposition = f'attachment; filename="attention.{ending}"'
    return Response(content, media_type=TYPES[ending], headers={"content-disposition": disposition})


def _csv(trace: Trace, kind: Kind, layer: int, head: int) -> bytes:
    """One head as a table: a column for each key, a row for each query. The mark in front lets
    spreadsheets see that it is UTF-8."""
    rows, columns = trace.labels(kind)  # as the screen names them
    weights = trace.attention(kind, layer, head).tolist()
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(["", *(_cell(label) for label in columns)])
    for label, row in zip(rows, weights, strict=True):
        out.writerow([_cell(label), *(f"{w:.6g}" for w in row)])
    return b"\xef\xbb\xbf" + text.getvalue().encode()


def _cell(label: str) -> str:
    """A word that begins like a formula is not one: spreadsheets would run it."""
    return f"'{label}" if label[:1] in "=+-@" else label
