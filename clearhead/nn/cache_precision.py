"""Number formats of the KV cache: keys or values in, what is stored of them out; and back.

    float32    as they were computed
    bfloat16   half the bytes
    int8       a quarter: 255 steps per vector; the size of a step, a float32, is in the four bytes after it

Shape suffixes: E head width, S bytes of a stored vector.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, nearest
from .layers import one_call

CachePrecision = Literal["float32", "bfloat16", "int8"]
CACHE_PRECISIONS: tuple[CachePrecision, ...] = get_args(CachePrecision)
STEP_BYTES = 4  # of a float32
INT8_MOST = 127


def check_cache_precision(name: str) -> CachePrecision:
    for precision in CACHE_PRECISIONS:
        if name == precision:
            return precision
    raise InputError(f"cache_precision is {name!r}; {nearest(name, CACHE_PRECISIONS)}")


@one_call
def to_stored(x: Tensor, precision: CachePrecision) -> Tensor:
    """(..., E) in the number that the model computes in to (..., E) or, for int8, (..., S)."""
    if precision == "bfloat16":
        return x.to(torch.bfloat16)
    if precision == "int8":
        return _quantize(x)
    return x


@one_call
def from_stored(stored: Tensor, precision: CachePrecision, width: int, dtype: torch.dtype) -> Tensor:
    """What was stored, as (..., E) with `width` numbers."""
    if precision == "int8":
        steps = stored[..., -STEP_BYTES:].view(torch.float32)
        return (stored[..., :width] * steps).to(dtype)
    return stored.to(dtype)


def _quantize(x: Tensor) -> Tensor:
    steps = x.float().abs().amax(dim=-1, keepdim=True) / INT8_MOST  # NaN if a number is
    levels = (x / steps.clamp(min=torch.finfo(torch.float32).tiny)).round().to(torch.int8)
    padding = -x.shape[-1] % STEP_BYTES  # so that steps lie at multiples of four bytes
    return torch.cat([F.pad(levels, (0, padding)), steps.view(torch.int8)], dim=-1)
