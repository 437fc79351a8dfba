"""The whole model: ids in, logits out."""

from __future__ import annotations

import math

import numpy as np

from .arrays import Activation, Array, Ids, Order
from .heads import linear, positional_encoding
from .layers import decoder_layer, encoder_layer, layer_norm, relu
from .masks import causal_mask, padding_mask
from .weights import Transformer


def _embed(ids_BT: Ids, embedding_VD: Array, pad: int) -> Array:
    vocab, width = embedding_VD.shape
    if np.any((ids_BT < 0) | (ids_BT >= vocab)):  # NumPy would read id -1 as the last word
        raise ValueError(f"ids must be in 0..{vocab - 1}, given {ids_BT.min()}..{ids_BT.max()}")
    # Positions count real tokens, so padding on the left or on the right gives the same numbers.
    position_BT = np.maximum(np.cumsum(ids_BT != pad, axis=1) - 1, 0)
    table_TD = positional_encoding(ids_BT.shape[1], width).astype(embedding_VD.dtype)
    # sqrt(width) scales the small embeddings to the size of the sines they are added to.
    x_BTD: Array = embedding_VD[ids_BT] * math.sqrt(width) + table_TD[position_BT]
    return x_BTD


def transformer(
    source: Ids,
    target: Ids,
    weights: Transformer,
    heads: int,
    order: Order = "post",
    activation: Activation = relu,
    pad: int = 0,
) -> Array:
    """source ids (B, K) and target ids (B, T) -> logits (B, T, V).

    For training, give the target shifted right (begin token first): position t then predicts
    token t + 1, and the causal mask keeps it from seeing that token.
    """
    if order == "pre" and (weights.encoder_norm is None or weights.decoder_norm is None):
        raise ValueError("order='pre' needs the last norms: init(..., order='pre') makes them")
    source_mask = padding_mask(source, pad)
    target_mask = padding_mask(target, pad) & causal_mask(target.shape[1])

    encoder_output_BKD = _embed(source, weights.source_embedding, pad)
    for encoder in weights.encoder:
        encoder_output_BKD = encoder_layer(encoder_output_BKD, encoder, heads, source_mask, order, activation)
    if weights.encoder_norm is not None:
        encoder_output_BKD = layer_norm(encoder_output_BKD, *weights.encoder_norm)

    x_BTD = _embed(target, weights.target_embedding, pad)
    for decoder in weights.decoder:
        x_BTD = decoder_layer(
            x_BTD, encoder_output_BKD, decoder, heads, target_mask, source_mask, order, activation
        )
    if weights.decoder_norm is not None:
        x_BTD = layer_norm(x_BTD, *weights.decoder_norm)
    return linear(x_BTD, weights.head)
