"""The names of the textbooks as thin wrappers over the core that fix the bugs of the usual listings.

A listing runs with its imports changed to this package; where listings disagree (masks, biases, what a layer
returns), the docstring explains how each is recognised.

    from clearhead.primer.torch import Transformer, create_masks, greedy_decode

The same mathematics as plain formulas is in `clearhead.primer.numpy`.
"""

from .attention import (
    ModelArgs,
    MultiHeadAttention,
    attention,
    basic_attention,
    scaled_dot_product_attention,
    self_attention,
)
from .decoding import greedy_decode
from .distributed import DistributedTransformer
from .layers import (
    DecoderLayer,
    DecoderOutput,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    PositionalEncoding,
    PositionwiseFeedForward,
    TransformerBlock,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    get_positional_encoding,
    positional_encoding,
)
from .looking import analyze_gradients, count_transformer_params, visualize_attention
from .masks import (
    create_look_ahead_mask,
    create_masks,
    create_padding_mask,
    generate_square_subsequent_mask,
)
from .model import BASE, Attentions, Transformer
from .training import LabelSmoothingLoss, augment_data, get_lr_scheduler, train_step
from .vampire import MultiHeadVampireAttention, VampireAttention, self_attention_sentence_encoder

__all__ = [
    # attention
    "scaled_dot_product_attention", "attention", "basic_attention", "self_attention",
    "MultiHeadAttention", "ModelArgs",
    "VampireAttention", "MultiHeadVampireAttention", "self_attention_sentence_encoder",
    # parts and the whole
    "PositionwiseFeedForward", "FeedForward", "LayerNorm",
    "PositionalEncoding", "positional_encoding", "get_positional_encoding",
    "EncoderLayer", "TransformerEncoderLayer", "DecoderLayer", "TransformerDecoderLayer", "DecoderOutput",
    "TransformerBlock", "Transformer", "Attentions", "BASE", "DistributedTransformer",
    # masks
    "create_padding_mask", "create_look_ahead_mask", "create_masks", "generate_square_subsequent_mask",
    # training, decoding, plots
    "train_step", "get_lr_scheduler", "LabelSmoothingLoss", "augment_data", "greedy_decode",
    "count_transformer_params", "visualize_attention", "analyze_gradients",
]  # fmt: skip
