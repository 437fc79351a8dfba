"""What stood in the place of attention before it: recurrent cells and convolutions, in the same block."""

from .convolution import Convolution
from .recurrent import Recurrent

__all__ = ["Convolution", "Recurrent"]
