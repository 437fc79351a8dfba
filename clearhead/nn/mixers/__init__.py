"""Token mixers in the place of attention: recurrent cells, convolutions, Fourier transforms."""

from .convolution import Convolution
from .fourier import Fourier
from .recurrent import Recurrent

__all__ = ["Convolution", "Fourier", "Recurrent"]
