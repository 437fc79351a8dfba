"""Attention kernels, one file each. A new one is an `AttentionKernel` spec, its module, and a line here."""

from .bigbird import BigBird
from .chunks import Chunks
from .kernel import ALL, AttentionCall, AttentionKernel, Kernel, RecordedCall
from .linear import Linear
from .linformer import Linformer
from .longformer import Longformer
from .lsh import LSH
from .nystrom import Nystrom
from .performer import Performer
from .softmax import Softmax, SoftmaxKernel, width_of
from .summary import Summary
from .tiled import Tiled
from .window import Window

__all__ = [
    "LSH", "AttentionCall", "AttentionKernel", "BigBird", "Chunks", "Kernel", "Linear", "Linformer",
    "Longformer", "Nystrom", "Performer", "Softmax", "Summary", "Tiled", "Window",
    # for the other packages
    "ALL", "RecordedCall", "SoftmaxKernel", "width_of",
]  # fmt: skip
