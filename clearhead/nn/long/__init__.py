"""What long texts ask of the core: distances for positions, a memory of segments, tables for many words."""

from .adaptive import Adaptive, AdaptiveHead
from .axial import Axial
from .memory import Memory
from .relative import RelativeWaves

__all__ = ["Adaptive", "AdaptiveHead", "Axial", "Memory", "RelativeWaves"]
