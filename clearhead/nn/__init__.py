"""The core: ids in, logits out. A few small modules that do not know which family they belong to."""

from . import kernels, mask_adapters, norm
from .attention import Attention, Projection, TokenMixer
from .block import Block, BlockModule, BlockOrder
from .block_summaries import BlockSummaries
from .cache import KV, Cache, is_identity
from .cache_precision import (
    CACHE_PRECISIONS,
    STEP_BYTES,
    CachePrecision,
    check_cache_precision,
    from_stored,
    to_stored,
)
from .combined_positions import Combined
from .context import Context, States
from .cost import CallShape, DeviceType, HiddenShape, PartCost, PositionCost, linear_cost, matmul_cost
from .counting import count_steps
from .doctor import check_mask
from .embed import Embed, Embedding, TokenEmbedding, Tokens
from .encoder_decoder import EncoderDecoder, EncoderDecoderModel, SameInput, SameInputModel
from .experts import ExpertGroups, Experts, MixtureOfExperts, Router, RouterCall, RouterModule
from .feedforward import ACTIVATIONS, MLP, Activation, FeedForward, Gated
from .head_norms import HeadNorms
from .heads import Head, TokenHead, TokenLogits, Transform, WordHead
from .init import FanIn, Init, Normal, ResidualNormal, Xavier, initialise
from .kernels import (
    LSH,
    AttentionCall,
    AttentionKernel,
    BigBird,
    Chunks,
    Kernel,
    Linear,
    Linformer,
    Longformer,
    Nystrom,
    Performer,
    Softmax,
    Summary,
    Tiled,
    Window,
)
from .label_heads import Labels, Pool, Pooled, Span, Tags, pool_states
from .latent import Latent, LatentAttention
from .layers import Dropout, EmbeddingTable, LinearLayer, generator, one_call
from .long import (
    Adaptive,
    AdaptiveHead,
    Axial,
    Disentangled,
    Pooling,
    RelativeTypes,
    RelativeWaves,
    SegmentMemory,
)
from .masked_tokens import MaskedZero
from .masks import (
    Causal,
    Documents,
    Everyone,
    Given,
    Global,
    Globals,
    Mask,
    Padding,
    PrefixMask,
    SlidingWindow,
)
from .mixers import Convolution, Fourier, Recurrent
from .model import Model, SingleStack, SingleStackModel, TransformerModel
from .multi_head import MultiHead, SelfAttention, TokenMixerModule
from .norm import rms_norm
from .position_schemes import Alibi, Learned, RelativeBuckets, Sinusoidal, waves
from .positions import BoundPositions, NoPositions, Positions, PositionScheme
from .products import LayerProduct, training_linear
from .rope import Rope, Stretch, rotate_pairs
from .rope_scaling import DynamicNTK, LinearStretch, Llama3, LongRope, Yarn
from .stack import Stack
from .tap import OFF, Recorder, Tap, sites
from .tower import Tower
from .view import View
from .virtual_tokens import (
    PrefixModule,
    PrefixTokens,
    PromptModule,
    PromptTokens,
    VirtualLength,
    VirtualTokens,
)

__all__ = [
    # a model and its parts
    "EmbeddingTable", "LayerProduct", "one_call", "rms_norm", "rotate_pairs",
    "SingleStack", "EncoderDecoder", "SameInput", "Tower", "Block", "Attention", "Latent",
    "BlockSummaries", "Model", "TransformerModel", "SingleStackModel", "EncoderDecoderModel",
    "SameInputModel",
    # the options
    "Adaptive", "AdaptiveHead", "Tokens", "MaskedZero", "MLP", "Gated", "Experts", "Router", "ExpertGroups",
    "norm", "TokenHead", "Labels", "Tags", "Span",
    "Pooled", "Transform", "NoPositions", "Learned", "Sinusoidal", "Rope", "Alibi", "RelativeBuckets",
    "Combined", "RelativeWaves", "RelativeTypes", "Disentangled", "Axial", "Pooling", "LinearStretch",
    "DynamicNTK", "Yarn", "LongRope", "Llama3",
    "PromptTokens", "PrefixTokens", "VirtualTokens",
    # kernels
    "kernels", "Softmax", "Window", "Longformer", "BigBird", "LSH", "Chunks", "Linear", "Performer",
    "Linformer", "Nystrom", "Summary", "Tiled", "Recurrent", "Convolution", "Fourier", "Xavier",
    "Normal", "ResidualNormal", "FanIn",
    # masks
    "Mask", "Everyone", "Causal", "SlidingWindow", "Padding", "PrefixMask", "Documents", "Global",
    "Globals", "View", "mask_adapters", "check_mask",
    # running, recording, extending
    "Cache", "SegmentMemory", "Tap", "OFF", "Recorder", "sites", "Kernel", "AttentionKernel", "AttentionCall",
    "TokenMixer", "Projection", "Positions", "PositionScheme", "BoundPositions", "Embed", "Embedding", "Init",
    # for the other packages
    "MixtureOfExperts", "RouterModule", "RouterCall", "LatentAttention", "HeadNorms",
    "BlockOrder",
    "MultiHead", "SelfAttention", "TokenMixerModule", "BlockModule", "KV", "is_identity", "Context",
    "States", "CallShape", "DeviceType", "HiddenShape", "PartCost", "PositionCost", "linear_cost",
    "count_steps", "matmul_cost", "generator", "TokenEmbedding", "ACTIVATIONS", "Activation", "FeedForward",
    "Head", "TokenLogits", "WordHead", "initialise", "Pool", "pool_states", "LinearLayer", "Given", "waves",
    "Stretch", "Stack", "PrefixModule", "PromptModule", "VirtualLength", "Dropout", "training_linear",
    "CACHE_PRECISIONS", "STEP_BYTES", "CachePrecision", "check_cache_precision", "from_stored", "to_stored",
]  # fmt: skip
