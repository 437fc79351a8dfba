"""Layers: attention and feed-forward, each with a norm and a residual connection."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .arrays import Activation, Array, Mask, Order, dtypes
from .heads import linear, multi_head_attention
from .weights import DecoderLayer, EncoderLayer, FeedForward, Norm


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    """Each token by itself: mean 0 and variance 1 over its width, then gamma and beta.

    A frequent mistake is (x - mean) / (std + eps) with a std that divides by D - 1: here the
    variance divides by D, and eps stands inside the root.
    """
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    normal: Array = (x - mean) / np.sqrt(variance + eps)
    return normal * gamma + beta


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def gelu(x: Array) -> Array:
    """x * P(a standard normal number is below x), exactly and not by the tanh approximation."""
    # erfc(-z) instead of 1 + erf(z): that sum loses every digit for very negative x.
    below: Array = 0.5 * _erfc(-x / math.sqrt(2))
    return (x * below).astype(dtypes(x)[0])


def feed_forward(x: Array, weights: FeedForward, activation: Activation = relu) -> Array:
    """activation(x W1 + b1) W2 + b2, for every token by itself."""
    return linear(activation(linear(x, weights.up)), weights.down)


def _residual(x: Array, part: Callable[[Array], Array], norm: Norm, order: Order) -> Array:
    """post: norm(x + part(x)), as first published. pre: x + part(norm(x)), more stable in deep models."""
    if order == "post":
        return layer_norm(x + part(x), *norm)
    if order == "pre":
        return x + part(layer_norm(x, *norm))
    raise ValueError(f"order must be 'post' or 'pre', given {order!r}")


def encoder_layer(
    x_BTD: Array,
    weights: EncoderLayer,
    heads: int,
    mask: Mask | None = None,
    order: Order = "post",
    activation: Activation = relu,
) -> Array:
    """Self-attention, then the feed-forward network. (B, T, D) -> (B, T, D)."""
    attn, attn_norm, ff, ff_norm = weights
    x_BTD = _residual(x_BTD, lambda x: multi_head_attention(x, x, attn, heads, mask)[0], attn_norm, order)
    return _residual(x_BTD, lambda x: feed_forward(x, ff, activation), ff_norm, order)


def decoder_layer(
    x_BTD: Array,
    encoder_output_BKD: Array,
    weights: DecoderLayer,
    heads: int,
    mask: Mask | None = None,
    source_mask: Mask | None = None,
    order: Order = "post",
    activation: Activation = relu,
) -> Array:
    """An encoder layer with cross-attention in between. (B, T, D) -> (B, T, D)."""
    attn, attn_norm, cross, cross_norm, ff, ff_norm = weights
    x_BTD = _residual(x_BTD, lambda x: multi_head_attention(x, x, attn, heads, mask)[0], attn_norm, order)
    x_BTD = _residual(
        x_BTD,
        lambda x: multi_head_attention(x, encoder_output_BKD, cross, heads, source_mask)[0],
        cross_norm,
        order,
    )
    return _residual(x_BTD, lambda x: feed_forward(x, ff, activation), ff_norm, order)
