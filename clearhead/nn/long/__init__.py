"""What long texts need from the core: distances for positions, pooling between layers, segment memory, large
vocabularies."""

from .adaptive import Adaptive, AdaptiveHead
from .axial import Axial
from .disentangled import Disentangled
from .pooling import Pooling
from .relative import RelativeWaves
from .relative_types import RelativeTypes
from .segment_memory import SegmentMemory

__all__ = [
    "Adaptive", "AdaptiveHead", "Axial", "Disentangled", "SegmentMemory", "RelativeWaves", "RelativeTypes",
    "Pooling",
]  # fmt: skip
