"""Linear layers and tables that are created empty, the random generator that `init` fills them with, dropout.

torch initialises a new layer at once, from its global generator. Here that would cost time for numbers that
are overwritten and, on the meta device, a second of imports.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FAST_DROPOUT = ("cuda", "mps", "meta")  # devices on which torch's own dropout is taken


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


class Dropout(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return apply_dropout(x, self.p) if self.training else x


def apply_dropout(x: Tensor, p: float) -> Tensor:
    """Zero a share `p` of the numbers and scale the others up, so that the mean stays.

    On a CPU four numbers share the 64 bits of one random draw; torch makes a slower draw for each, which was
    a fifth of a training step in bfloat16. `p` is rounded to a multiple of 2 ** -16.
    """
    dropped = round(p * 2**16)
    if not 0 < dropped < 2**16 or x.device.type in FAST_DROPOUT:
        return F.dropout(x, p)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform from -2 ** 15 to 2 ** 15 - 1
    kept = levels >= dropped - 2**15
    return x * kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))
