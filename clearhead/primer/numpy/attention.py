"""Queries, keys and values in, the weighted values out; wrong shapes raise an error that names them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Array, Mask, dtypes
from .masks import BlockedPadding, looks_like_padding, to_allowed


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
    Q: Array, K: Array, V: Array, mask: ArrayLike | None = None, scale: float | None = None
) -> tuple[Array, Array]:
    """softmax(Q Kᵀ * scale) V, for arrays of shape (T, E), (B, T, E) or (B, H, T, E).

    V may have another width than Q and K. Returns the output (..., queries, width of V) and the weights
    (..., queries, keys). A blocked key has weight exactly 0; a query that may attend to nothing gets zeros.

    The mask: booleans are True = may attend. Numbers 0 and 1 are 1 = blocked, as `np.triu(np.ones(...), 1)`
    is meant in `scores + mask * -1e9`; `create_look_ahead_mask` and `create_padding_mask` give such masks.
    Numbers 0 and -inf are added to the scores. Its shape broadcasts to the weights: (queries, keys) for all
    sentences, (sentences, 1, keys) or (sentences, 1, 1, keys) for padding.

    Why the scale 1/sqrt(E): the dot product of two random vectors of width E has variance E. With
    no scale, the softmax of wide heads is nearly 0 or 1 everywhere and passes no gradient.
    """
    answer, work = check_qkv(Q, K, V)
    weights = weights_of(Q.astype(work), K.astype(work), mask, scale)
    return (weights @ V.astype(work)).astype(answer), weights.astype(answer)


def scale_of(q: Array, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def weights_of(q: Array, k: Array, mask: ArrayLike | None, scale: float | None) -> Array:
    # swapaxes, because `.T` and `.transpose` would also reverse the batch and head axes.
    scores = q @ np.swapaxes(k, -1, -2) * scale_of(q, scale)
    if mask is not None:
        # -inf and not a large negative number: it blocks exactly, in every precision.
        scores = np.where(check_mask(mask, scores.shape), scores, -np.inf)
    return softmax(scores)


def check_qkv(q: Array, k: Array, v: Array) -> tuple[np.dtype[Any], np.dtype[Any]]:
    shapes = f"given q {q.shape}, k {k.shape}, v {v.shape}"
    if not 2 <= q.ndim <= 4:
        raise ValueError(f"attention takes arrays of 2, 3 or 4 axes, {shapes}")
    # NumPy would silently broadcast a batch of 1 over a batch of 2 and mix sentences.
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"q, k and v must have the same batch and head axes, {shapes}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width, {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have the same number of tokens, {shapes}")
    return dtypes(q, k, v)


def check_mask(mask: ArrayLike, scores: tuple[int, ...]) -> Mask:
    allowed = _per_sentence(to_allowed(mask), scores, is_padding=isinstance(mask, BlockedPadding))
    shapes = f"mask of shape {np.shape(mask)} for scores of shape {scores}"
    try:
        np.broadcast_to(allowed, scores)
    except ValueError:
        raise ValueError(f"{shapes}: the mask does not broadcast to the scores") from None
    # (4, 4) for 4 sentences of 4 tokens is (queries, keys), unless it may as well be their padding.
    # (2, 4, 4) for 2 sentences and 2 heads: NumPy reads it as (heads, ...), the caller may mean sentences.
    first_is_batch = allowed.ndim < len(scores) and allowed.shape[:1] == scores[:1] != (1,)
    if first_is_batch and (allowed.ndim == 3 or (allowed.ndim == 2 and looks_like_padding(allowed))):
        raise ValueError(
            f"{shapes}: its first axis could mean the sentences; give it {len(scores)} axes, "
            "mask[None, ...] for the same mask everywhere, mask[:, None, ...] for one per sentence"
        )
    return allowed


def _per_sentence(allowed: Mask, scores: tuple[int, ...], *, is_padding: bool) -> Mask:
    """(B, K) -> (B, 1, K) or (B, 1, 1, K), if it is known or clear from the shape that rows are sentences."""
    batch, queries, keys = scores[0], scores[-2], scores[-1]
    by_shape = allowed.shape == (batch, keys) and batch != queries
    if len(scores) > 2 == allowed.ndim and (is_padding or by_shape):
        return np.expand_dims(allowed, tuple(range(1, len(scores) - 1)))
    return allowed


def basic_attention(Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Attention without a mask: every query sees every key. Returns (output, weights)."""
    return scaled_dot_product_attention(Q, K, V)


def self_attention(X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: ArrayLike | None = None) -> Array:
    """Queries, keys and values all come from X (T, D) or (B, T, D). Returns the output alone."""
    return scaled_dot_product_attention(X @ W_Q, X @ W_K, X @ W_V, mask)[0]
