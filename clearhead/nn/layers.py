"""Linear layers and tables that are created empty, and the random generator that `init` fills them with.

torch initialises a new layer at once, from its global generator. Here that would cost time for numbers that
are overwritten and, on the meta device, a second of imports.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import nn


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Random numbers as a function of a key: the same key gives the same numbers in any order of calls."""
    words = "/".join(map(str, (seed, *purpose)))
    digest = hashlib.sha256(words.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


@dataclass(frozen=True)
class InitDistribution:
    """The distribution of the initial values of a matrix: normal or uniform, with this standard deviation.

    A module whose matrices the model's scheme does not initialise has one as `init_distribution`.
    """

    std: float
    uniform: bool = False


class LinearLayer(nn.Linear):
    def reset_parameters(self) -> None:
        """Left empty on purpose."""


class EmbeddingTable(nn.Embedding):
    def reset_parameters(self) -> None:
        """Left empty on purpose."""
