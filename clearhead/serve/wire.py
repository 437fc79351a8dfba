"""Responses with tensors: attention as safetensors bytes for the page, and traces as files to download.

A byte carries 255 times the square root of a weight: rows over hundreds of tokens are nearly uniform, and in
a linear byte all their weights would be 0 or 1. Shape suffixes: L layers, H heads, Q queries, K keys.
"""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from safetensors.torch import save
from starlette.responses import Response
from torch import Tensor

from ..lens import AttentionKind, Trace

FILE_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "html": "text/html",
    "safetensors": "application/octet-stream",
}
MAX_OVERVIEW_BYTES = 590_000  # bytes of all thumbnails together
MAX_THUMBNAIL = 64  # side of one in pixels


def to_root_bytes(weights: Tensor) -> Tensor:
    """One byte per weight: 255 times its square root."""
    return (weights.clamp(0, 1).sqrt() * 255).round().to(torch.uint8)


def thumbnails(weights_HQK: Tensor, size: int) -> Tensor:
    """(H, rows, columns): the largest weight of each patch, so that single large weights stay visible."""
    rows, columns = (min(size, n) for n in weights_HQK.shape[-2:])
    return to_root_bytes(F.adaptive_max_pool2d(weights_HQK, (rows, columns)))


def thumbnail_size(heads: int) -> int:
    """The side of a thumbnail in pixels, so that the overview stays below its size limit."""
    return max(8, min(MAX_THUMBNAIL, int((MAX_OVERVIEW_BYTES / heads) ** 0.5)))


def to_safetensors(**tensors: Tensor) -> bytes:
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def binary_response(content: bytes) -> Response:
    """A trace never changes, so the browser may cache the response."""
    headers = {"cache-control": "private, max-age=86400, immutable"}
    return Response(content, media_type="application/octet-stream", headers=headers)


def export_trace(
    trace: Trace, ending: Literal["csv", "html", "safetensors"], kind: AttentionKind, layer: int, head: int
) -> Response:
    if ending == "csv":
        content = _csv(trace, kind, layer, head)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = trace.save(Path(folder) / f"trace.{ending}", kind=kind, layer=layer, head=head)
            content = path.read_bytes()
    disposition = f'attachment; filename="attention.{ending}"'
    return Response(content, media_type=FILE_TYPES[ending], headers={"content-disposition": disposition})


def _csv(trace: Trace, kind: AttentionKind, layer: int, head: int) -> bytes:
    """One head as a table: a row per query, a column per key. It starts with a byte order mark, from which
    spreadsheets recognise UTF-8."""
    rows, columns = trace.labels(kind)  # as the screen names them
    weights = trace.attention(kind, layer, head).tolist()
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(["", *(_cell(label) for label in columns)])
    for label, row in zip(rows, weights, strict=True):
        out.writerow([_cell(label), *(f"{w:.6g}" for w in row)])
    return b"\xef\xbb\xbf" + text.getvalue().encode()


def _cell(label: str) -> str:
    """Quote labels that begin like a formula, which spreadsheets would evaluate."""
    return f"'{label}" if label[:1] in "=+-@" else label
