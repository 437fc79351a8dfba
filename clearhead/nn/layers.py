"""Linear layers and tables that draw nothing when they are made: `init` or a checkpoint fills them.

torch fills a new layer at once, from its global generator, which costs a draw that is thrown away and, on the
meta device, a second of imports.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a matrix's first values, and the shape of their distribution.

    A module that knows better than the model's scheme how its own matrices begin has one as `first`.
    """

    std: float
    uniform: bool = False


class LinearLayer(nn.Linear):
    def reset_parameters(self) -> None:
        """Left empty on purpose."""


class EmbeddingTable(nn.Embedding):
    def reset_parameters(self) -> None:
        """Left empty on purpose."""
