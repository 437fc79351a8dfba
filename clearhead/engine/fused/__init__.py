"""Fused small operators: what a decode step computes between two products, each in one pass over a few rows.

    add_norm   residual + output of a sub-layer, and the norm of the sum
    attend     rotation of queries and keys, append to the KV cache, attention of one query per row and head
    gate       activation, times the other half of a gated feed-forward layer

torch needs 5 to 20 calls for each of these, which in a thin model take as long as its products. Here they are
compiled by numba (the extra `fast`); without it, nothing is fused. Every operator has a plain twin in torch,
and a test that they agree. They take addresses, not tensors: the caller keeps those alive.

Numbers are float32, or bfloat16 as its 16 bits, where a product takes or gives them.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def kernels() -> ModuleType | None:
    """The compiled operators; None without numba, or with CLEARHEAD_FUSED=0."""
    import os

    if os.environ.get("CLEARHEAD_FUSED", "1").lower() in ("0", "false", "no", "off"):
        return None
    try:
        from . import operators
    except ImportError:
        return None
    return operators
