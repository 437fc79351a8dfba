"""What long texts need from the core: distances for positions, segment memory, large vocabularies."""

from .adaptive import Adaptive, AdaptiveHead
from .axial import Axial
from .memory import Memory
from .relative import RelativeWaves

__all__ = ["Adaptive", "AdaptiveHead", "Axial", "Memory", "RelativeWaves"]
