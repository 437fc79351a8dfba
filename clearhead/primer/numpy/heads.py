"""Multi-head attention: attention several times, each on its own slice of the width; and positions."""

from __future__ import annotations

from typing import Literal

import numpy as np

from .arrays import Array, Mask
from .attention import scaled_dot_product_attention
from .weights import Attention, Linear


def linear(x: Array, weights: Linear) -> Array:
    return x @ weights.weight + weights.bias


def split_heads(x_BTD: Array, heads: int) -> Array:
    """(B, T, H*E) -> (B, H, T, E)."""
    if x_BTD.ndim != 3 or heads < 1 or x_BTD.shape[-1] % heads:
        raise ValueError(f"(batch, tokens, width) must split into {heads} heads, given {x_BTD.shape}")
    batch, tokens, width = x_BTD.shape  # of this array: there may be more keys than queries
    return x_BTD.reshape(batch, tokens, heads, width // heads).swapaxes(1, 2)


def combine_heads(x_BHTE: Array) -> Array:
    """(B, H, T, E) -> (B, T, H*E): the inverse of split_heads."""
    batch, heads, tokens, width = x_BHTE.shape
    return x_BHTE.swapaxes(1, 2).reshape(batch, tokens, heads * width)


def multi_head_attention(
    query: Array, source: Array, weights: Attention, heads: int, mask: Mask | None = None
) -> tuple[Array, Array]:
    """Queries from query (B, Q, D), keys and values from source (B, K, D) -> (B, Q, D) and (B, H, Q, K).

    Self-attention: source is query. Cross-attention: source is the encoder output.
    """
    q_BHQE = split_heads(linear(query, weights.q), heads)
    k_BHKE = split_heads(linear(source, weights.k), heads)
    v_BHKE = split_heads(linear(source, weights.v), heads)
    mixed_BHQE, weights_BHQK = scaled_dot_product_attention(q_BHQE, k_BHKE, v_BHKE, mask)
    return linear(combine_heads(mixed_BHQE), weights.out), weights_BHQK


def positional_encoding(
    seq_len: int, d_model: int, layout: Literal["interleaved", "halves"] = "interleaved"
) -> Array:
    """(T, D): PE[pos, 2i] = sin(pos / 10000^(2i/D)) and PE[pos, 2i+1] = cos of the same angle.

    "halves" holds the same columns, all sines before all cosines. An odd width ends with a sine
    that has no cosine. A frequent mistake is to double an index that already counts 0, 2, 4, ...
    """
    even = np.arange(0, d_model, 2)  # this is 2i
    angles = np.arange(seq_len)[:, None] / 10000.0 ** (even / d_model)
    sines, cosines = np.sin(angles), np.cos(angles[:, : d_model // 2])
    if layout == "halves":
        return np.concatenate([sines, cosines], axis=1)
    if layout != "interleaved":
        raise ValueError(f"layout must be 'interleaved' or 'halves', given {layout!r}")
    table_TD = np.empty((seq_len, d_model))
    table_TD[:, 0::2], table_TD[:, 1::2] = sines, cosines
    return table_TD


def get_positional_encoding(max_seq_len: int, d_model: int) -> Array:
    """The same table. (Doubling an index that counts 0, 2, 4 already leaves only two columns right.)"""
    return positional_encoding(max_seq_len, d_model)
