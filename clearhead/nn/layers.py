"""Linear layers and tables without random initialisation: `init` or a checkpoint fills them.

torch fills a new layer at once, from its global generator, which costs time for numbers that are
thrown away and, on the meta device, a second of imports.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a matrix's first values, and the shape of their distribution.

    A module whose matrices are not initialised by the model's scheme has one as `first`.
    """

    std: float
    uniform: bool = False


class LinearLayer(nn.Linear):
    def reset_parameters(self) -> None:
        """Left empty on purpose."""


class EmbeddingTable(nn.Embedding):
    def reset_parameters(self) -> None:
        """Left empty on purpose."""
