"""What long texts need from the core: distances for positions, segment memory, large vocabularies."""

from .adaptive import Adaptive, AdaptiveHead
from .axial import Axial
from .disentangled import Disentangled
from .relative import RelativeWaves
from .segment_memory import SegmentMemory

__all__ = ["Adaptive", "AdaptiveHead", "Axial", "Disentangled", "SegmentMemory", "RelativeWaves"]
