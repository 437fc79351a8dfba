"""The notes' own names as thin doors to the core; each says in a line what was wrong in the notes.

    from clearhead.primer.torch import Transformer, create_masks, greedy_decode

The same mathematics as plain formulas stands in `clearhead.primer.numpy`.
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
from .model import Attentions, Transformer
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
    "EncoderLayer", "TransformerEncoderLayer", "DecoderLayer", "TransformerDecoderLayer", "TransformerBlock",
    "Transformer", "Attentions", "DistributedTransformer",
    # masks
    "create_padding_mask", "create_look_ahead_mask", "create_masks", "generate_square_subsequent_mask",
    # training, decoding, looking
    "train_step", "get_lr_scheduler", "LabelSmoothingLoss", "augment_data", "greedy_decode",
    "count_transformer_params", "visualize_attention", "analyze_gradients",
]  # fmt: skip
