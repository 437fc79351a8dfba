"""Performer (Choromanski 2021): FAVOR+, softmax attention by positive orthogonal random features.

    exp(q.k) = mean over w of exp(w.q - q.q/2) exp(w.k - k.k/2),    w from a normal distribution

With directions that are orthogonal the mean needs fewer of them. The error falls with the root of `features`
and grows quickly with the size of the scores: sharp attention is what it approximates worst.
Shape suffixes: R texts, H heads, T tokens, F features, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ...spec import Directions
from ..cost import AttentionShape, PartCost, matmul_cost
from ..layers import generator
from .features import FeatureKernel, Features, sums_cost
from .kernel import AttentionKernel, Kernel
from .per_sequence import kept_per_row


@dataclass(frozen=True, kw_only=True)
class Performer(AttentionKernel):
    """The directions are a function of `seed`; with `redraw` every step of training has new ones."""

    features: Directions = 256
    seed: int = 0
    redraw: bool = False

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Performer(self)

    def cost(self, at: AttentionShape) -> PartCost:
        """Queries and keys times fixed directions, which have no gradient; both features twice or more."""
        rows, both = at.batch * at.heads, at.queries + at.keys
        query_cost = matmul_cost(rows, both, at.head_dim, self.features)
        found = sums_cost(at, self.features) + query_cost + PartCost(backward=-query_cost.flops)
        again = 0 if at.causal else at.keys
        return found + kept_per_row(at, at.keys * at.head_dim + self.features * (2 * both + again) + both)

    def cached(self, at: AttentionShape) -> int:
        """One matrix per head and its scale, however long the text."""
        return at.batch * at.heads * (self.features * (at.value_dim + 1) + 1)


class _Performer(FeatureKernel):
    def __init__(self, spec: Performer) -> None:
        super().__init__()
        self.spec = spec

    def features(self, q_RHQE: Tensor, k_RHKE: Tensor, scale: float) -> tuple[Tensor, Features]:
        w_EF = self.directions(q_RHQE).mT
        query = q_RHQE * scale**0.5 @ w_EF  # without q.q/2, which all features of a query share
        k_RHKE = k_RHKE * scale**0.5
        offered = k_RHKE @ w_EF - k_RHKE.square().sum(-1, keepdim=True) / 2
        highest, top = (x.amax(-1, keepdim=True).detach() for x in (query, offered))
        return (query - highest).exp(), Features((offered - top).exp(), top)

    def directions(self, like: Tensor) -> Tensor:
        """(F, E), one set for all heads."""
        count, width = self.spec.features, like.shape[-1]
        if self.training and self.spec.redraw:
            # From the generator that dropout uses, so that a step can be repeated exactly.
            drawn = int(torch.randint(2**62, ()))
            return directions(count, width, generator(drawn, "performer")).to(like)
        return _fixed(count, width, self.spec.seed, like.dtype, like.device)


@lru_cache(maxsize=32)
def _fixed(count: int, width: int, seed: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """All layers of a model share them, and so do decoding and training: ordinary tensors in every mode."""
    with torch.inference_mode(mode=False):
        return directions(count, width, generator(seed, "performer")).to(device, dtype)


def directions(count: int, width: int, key: torch.Generator) -> Tensor:
    """Blocks of orthogonal directions, with the lengths of normal vectors."""
    blocks = -(-count // width)
    square = torch.randn(blocks, width, width, generator=key, dtype=torch.float64)
    turned = torch.linalg.qr(square).Q.mT.reshape(-1, width)[:count]
    lengths = torch.randn(count, width, generator=key, dtype=torch.float64).norm(dim=1, keepdim=True)
    drawn: Tensor = turned * lengths
    return drawn
