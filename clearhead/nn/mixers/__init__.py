"""Token mixers that preceded attention, in the same block: recurrent cells and convolutions."""

from .convolution import Convolution
from .recurrent import Recurrent

__all__ = ["Convolution", "Recurrent"]
