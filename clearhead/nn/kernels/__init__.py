"""The kernels: one file each. A new one is a `Mixing` spec, its machine, and a line here."""

from .bigbird import BigBird
from .chunks import Chunks
from .kernel import Kernel, Mixing
from .longformer import Longformer
from .lsh import LSH
from .softmax import Softmax

__all__ = ["LSH", "BigBird", "Chunks", "Kernel", "Longformer", "Mixing", "Softmax"]
