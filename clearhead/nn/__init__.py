"""The core: ids in, logits out. A few small modules that do not know which family they belong to."""

from . import kernels, mask_adapters, norm
from .attention import Attention, TokenMixer
from .block import Block
from .cache import Cache
from .doctor import check_mask
from .embed import Tokens
from .feedforward import MLP, Gated
from .heads import Labels, Pooled, Span, Tags, TokenHead, Transform
from .init import FanIn, Normal, ResidualNormal, Xavier
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
from .long import Adaptive, AdaptiveHead, Axial, Memory, RelativeWaves
from .masks import Causal, Documents, Everyone, Global, Globals, Mask, Padding, Prefix, SlidingWindow
from .mixers import Convolution, Recurrent
from .model import Model, Pair, PairModel, Single, SingleModel, TransformerModel
from .positions import (
    Alibi,
    BoundPositions,
    Learned,
    NoPositions,
    Positions,
    PositionScheme,
    RelativeBuckets,
    Sinusoidal,
)
from .rope import DynamicNTK, LinearStretch, Llama3, Rope, Yarn
from .tap import OFF, Recorder, Tap, sites
from .tower import Tower
from .view import View

__all__ = [
    # a model and its parts
    "Single", "Pair", "Tower", "Block", "Attention", "Model", "SingleModel", "PairModel", "TransformerModel",
    # the options
    "Adaptive", "AdaptiveHead",
    "Tokens", "MLP", "Gated", "norm", "TokenHead", "Labels", "Tags", "Span", "Pooled", "Transform",
    "NoPositions", "Learned", "Sinusoidal", "Rope", "Alibi", "RelativeBuckets", "RelativeWaves", "Axial",
    "LinearStretch", "DynamicNTK", "Yarn", "Llama3",
    # kernels
    "kernels", "Softmax", "Window", "Longformer", "BigBird", "LSH", "Chunks", "Linear", "Performer",
    "Linformer", "Nystrom", "Summary", "Tiled", "Recurrent", "Convolution",
    "Xavier", "Normal", "ResidualNormal", "FanIn",
    # masks
    "Mask", "Everyone", "Causal", "SlidingWindow", "Padding", "Prefix", "Documents", "Global", "Globals",
    "View", "mask_adapters", "check_mask",
    # running, recording, extending
    "Cache", "Memory", "Tap", "OFF", "Recorder", "sites",
    "Kernel", "AttentionKernel", "AttentionCall", "TokenMixer",
    "Positions", "PositionScheme", "BoundPositions",
]  # fmt: skip
