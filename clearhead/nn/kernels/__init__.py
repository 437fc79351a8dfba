"""The kernels: one file each. A new one is a `Mixing` spec, its machine, and a line here."""

from .bigbird import BigBird
from .kernel import Kernel, Mixing
from .longformer import Longformer
from .softmax import Softmax

__all__ = ["BigBird", "Kernel", "Longformer", "Mixing", "Softmax"]
