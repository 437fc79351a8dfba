"""Queries, keys and values in, their mixture out; every misuse is refused by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import Array, Mask, dtypes
from .masks import Blocked, mask_from_blocked


def softmax(x: ArrayLike, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)): scores become weights that sum to one.

    Subtracting the largest score changes nothing in the result, and exp can no longer overflow.
    Where every score is -inf there is nothing to choose from: the weights are zeros, not NaN.
    """
    x = np.asarray(x)
    answer, work = dtypes(x)
    x = x.astype(work)
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    grown: Array = np.exp(x - np.where(top == -np.inf, 0, top))  # -inf - (-inf) would be NaN
    total = grown.sum(axis=axis, keepdims=True)
    weights: Array = grown / np.where(total == 0, 1, total)
    return weights.astype(answer)


def scaled_dot_product_attention(
    q: Array, k: Array, v: Array, mask: Mask | None = None, scale: float | None = None
) -> tuple[Array, Array]:
    """softmax(q kᵀ * scale) v, for arrays of shape (T, E), (B, T, E) or (B, H, T, E).

    q has Q rows, k and v have K rows; v may have another width than q and k. Returns the output
    (..., Q, width of v) and the weights (..., Q, K). The mask broadcasts to the weights: a blocked
    key has weight exactly 0, and a query that may attend to nothing gets zeros.

    Why the scale 1/sqrt(E): the dot product of two random vectors of width E has variance E. With
    no scale, the softmax of wide heads is nearly 0 or 1 everywhere and passes no gradient.
    """
    answer, work = check_qkv(q, k, v)
    weights = weights_of(q.astype(work), k.astype(work), mask, scale)
    return (weights @ v.astype(work)).astype(answer), weights.astype(answer)


def scale_of(q: Array, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def weights_of(q: Array, k: Array, mask: Mask | None, scale: float | None) -> Array:
    # swapaxes, because `.T` and `.transpose` would also turn the batch and head axes around.
    scores = q @ np.swapaxes(k, -1, -2) * scale_of(q, scale)
    if mask is not None:
        # -inf and not a large negative number: it blocks exactly, in every precision.
        scores = np.where(check_mask(mask, scores.shape), scores, -np.inf)
    return softmax(scores)


def check_qkv(q: Array, k: Array, v: Array) -> tuple[np.dtype[Any], np.dtype[Any]]:
    shapes = f"given q {q.shape}, k {k.shape}, v {v.shape}"
    if not 2 <= q.ndim <= 4:
        raise ValueError(f"attention takes arrays of 2, 3 or 4 axes, {shapes}")
    # NumPy would stretch a batch of 1 over a batch of 2 and mix sentences without a word.
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"q, k and v must have the same batch and head axes, {shapes}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width, {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have the same number of tokens, {shapes}")
    return dtypes(q, k, v)


def check_mask(mask: NDArray[Any], scores: tuple[int, ...]) -> Mask:
    mask = mask_from_blocked(mask) if isinstance(mask, Blocked) else np.asarray(mask)
    if mask.dtype != np.bool_:
        raise ValueError(
            f"a mask must be boolean, True = may attend, given {mask.dtype}: convert it with "
            "mask_from_blocked (1 = blocked) or mask_from_additive (0 and -inf)"
        )
    shapes = f"mask of shape {mask.shape} for scores of shape {scores}"
    try:
        np.broadcast_to(mask, scores)
    except ValueError:
        raise ValueError(f"{shapes}: the mask does not broadcast to the scores") from None
    # (4, 4) for 4 sentences of 4 tokens: NumPy reads it as (Q, K), the caller may mean (B, K).
    if 2 < len(scores) > mask.ndim and mask.shape[:1] == scores[:1] != (1,):
        raise ValueError(
            f"{shapes}: its first axis could mean the sentences; give it {len(scores)} axes, "
            "mask[None, ...] for the same mask everywhere, mask[:, None, ...] for one per sentence"
        )
    return mask


def basic_attention(Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Attention without a mask: every query sees every key. Returns (output, weights)."""
    return scaled_dot_product_attention(Q, K, V)


def self_attention(X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Mask | None = None) -> Array:
    """Queries, keys and values all come from X (T, D) or (B, T, D). Returns the output alone."""
    return scaled_dot_product_attention(X @ W_Q, X @ W_K, X @ W_V, mask)[0]
