"""The kernels: one file each. A new one is a `Mixing` spec, its machine, and a line here."""

from .kernel import Kernel, Mixing
from .softmax import Softmax

__all__ = ["Kernel", "Mixing", "Softmax"]
