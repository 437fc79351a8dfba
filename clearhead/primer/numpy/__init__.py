"""Arrays in, arrays out: attention and a whole small Transformer as plain NumPy formulas.

Read from top to bottom: softmax, attention, masks, weights, heads, positions, layers, the model,
and last the backward pass of attention. A suffix spells a shape, one letter per axis:

    B sentences in a batch    T tokens    Q queries    K keys    H heads
    E width of one head       D width of the model     V vocabulary

One rule for every mask: boolean, and **True means "may attend"**. Masks of numbers, as textbooks write
them, are converted; `masks.py` documents what a 1 means there.

>>> raw_K = np.array([12.5, 30.8, 25.1])  # how well "cat" matches each word of "The cat sat"
>>> softmax(raw_K / np.sqrt(64)).round(4)  # heads of width 64, so the scores shrink by 8
array([0.0638, 0.6282, 0.3081])
"""

import numpy as np

from .arrays import Activation, Array, Ids, Mask, Order
from .attention import basic_attention, scaled_dot_product_attention, self_attention, softmax
from .backward import attention_backward
from .heads import (
    combine_heads,
    get_positional_encoding,
    linear,
    multi_head_attention,
    positional_encoding,
    split_heads,
)
from .layers import decoder_layer, encoder_layer, feed_forward, gelu, layer_norm, relu
from .masks import (
    Blocked,
    BlockedPadding,
    causal_mask,
    create_look_ahead_mask,
    create_padding_mask,
    mask_from_additive,
    mask_from_blocked,
    padding_mask,
    to_allowed,
)
from .model import transformer
from .vampire import MultiHeadVampireAttention, VampireAttention, self_attention_sentence_encoder
from .weights import (
    Attention,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Linear,
    Norm,
    Transformer,
    init,
)

__all__ = [
    "np",  # the example above needs it
    # arrays
    "Array", "Mask", "Ids", "Activation", "Order",
    # attention
    "softmax", "scaled_dot_product_attention", "basic_attention", "self_attention", "attention_backward",
    # masks
    "padding_mask", "causal_mask", "mask_from_blocked", "mask_from_additive", "to_allowed",
    "Blocked", "BlockedPadding", "create_padding_mask", "create_look_ahead_mask",
    # weights
    "Linear", "Norm", "Attention", "FeedForward", "EncoderLayer", "DecoderLayer", "Transformer", "init",
    # heads, positions, layers, the model
    "linear", "split_heads", "combine_heads", "multi_head_attention",
    "positional_encoding", "get_positional_encoding",
    "layer_norm", "relu", "gelu", "feed_forward", "encoder_layer", "decoder_layer", "transformer",
    # the vampires
    "VampireAttention", "MultiHeadVampireAttention", "self_attention_sentence_encoder",
]  # fmt: skip
