"""On the wire: attention in, safetensors bytes out. A byte carries 255 times the square root of a weight.

Rows over hundreds of tokens are nearly uniform; in a linear byte all their weights would be 0 or 1.
Shape suffixes: L layers, H heads, Q queries, K keys.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from safetensors.torch import save
from starlette.responses import Response
from torch import Tensor

OVERVIEW = 590_000  # bytes of all thumbnails together
LARGEST = 64  # pixels of one


def roots(weights: Tensor) -> Tensor:
    return (weights.clamp(0, 1).sqrt() * 255).round().to(torch.uint8)


def thumbnails(weights_HQK: Tensor, size: int) -> Tensor:
    """(H, rows, columns): the largest weight of each patch, so that no single link is lost."""
    rows, columns = (min(size, n) for n in weights_HQK.shape[-2:])
    return roots(F.adaptive_max_pool2d(weights_HQK, (rows, columns)))


def thumbnail_size(heads: int) -> int:
    """As large as the budget of the whole overview allows."""
    return max(8, min(LARGEST, int((OVERVIEW / heads) ** 0.5)))


def packed(**tensors: Tensor) -> bytes:
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def answer(content: bytes) -> Response:
    """A trace never changes, so what was fetched of it may be kept."""
    headers = {"cache-control": "private, max-age=86400, immutable"}
    return Response(content, media_type="application/octet-stream", headers=headers)
