"""Disentangled positions (DeBERTa): a distance has a query and a key of its own, beside those of the tokens.

    score(i, j) = q_i k_j + q_i k(i - j) + k_j q(i - j)
                            c2p            p2c

Content to position (c2p): how much token i looks for something at this distance. Position to content (p2c):
how much token j is looked for at this distance. Each layer projects both from one table of distances.
Shape suffixes: B batch, H heads, G key heads, Q queries, K keys, N distances, D width, E head width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ...errors import SpecError, UnsupportedError
from ...spec import Count, Dims, Rate
from ..layers import Dropout, EmbeddingTable, LinearLayer
from ..norm import Norm
from ..position_schemes import Learned
from ..positions import BoundPositions, Positions, PositionScheme, Projections
from ..view import View

Term = Literal["c2p", "p2c"]


@dataclass(frozen=True, kw_only=True)
class Disentangled(Positions):
    """DeBERTa's positions (He 2020), scaled by (head_dim * (1 + terms)) ** -0.5, as its scores are.

    `project` is "own" (projections for distances alone) or "layer" (those that the layer has for its tokens).
    """

    farthest: Count = 512  # a greater distance counts as this one
    buckets: Count | None = None  # vectors for each direction: far distances share them; None: one each
    terms: tuple[Term, ...] = ("c2p", "p2c")
    project: Literal["own", "layer"] = "own"
    bias: str = "qk"  # which of its own projections have one
    norm: Norm | None = None  # of the table
    dropout: Rate = 0.0  # on the vectors of the table, in each layer
    absolute: Learned | None = None  # also added to the embeddings

    relative: ClassVar[bool] = True

    def check(self) -> None:
        if not self.terms or len(set(self.terms)) < len(self.terms):
            raise SpecError(f"Disentangled.terms is {self.terms}, expected 'c2p', 'p2c' or both")
        if set(self.bias) - set("qk"):
            raise SpecError(f"Disentangled.bias is {self.bias!r}, expected some of the letters q, k")
        if self.buckets is not None and not 2 <= self.buckets < 2 * (self.farthest - 1):
            raise SpecError(
                f"Disentangled.buckets is {self.buckets}, expected 2 or more, and less than twice farthest "
                f"({self.farthest}) - 1"
            )

    @property
    def max_length(self) -> int | None:
        return None if self.absolute is None else self.absolute.max_length

    def build(self, dims: Dims, width: int) -> PositionScheme:
        return _Disentangled(self, dims, width)


_LETTER = {"c2p": "k", "p2c": "q"}  # content to position: queries of tokens, keys of distances


class _Disentangled(PositionScheme):
    def __init__(self, spec: Disentangled, dims: Dims, width: int) -> None:
        super().__init__()
        self.spec, self.span = spec, spec.buckets or spec.farthest
        self.scale = (dims.head_dim * (1 + len(spec.terms))) ** -0.5
        self.table = EmbeddingTable(2 * self.span, dims.width)
        self.norm = spec.norm.build(dims.width) if spec.norm else None
        self.dropout = Dropout(spec.dropout)
        self.absolute = spec.absolute.build(dims, width) if spec.absolute else None
        inner, own = dims.heads * dims.head_dim, dims.depth if spec.project == "own" else 0
        for term in spec.terms:
            letter = _LETTER[term]
            layers = (LinearLayer(dims.width, inner, bias=letter in spec.bias) for _ in range(own))
            self.add_module(letter, nn.ModuleList(layers))

    def add(self, x_BTD: Tensor, pos_BT: Tensor) -> Tensor:
        return x_BTD if self.absolute is None else self.absolute.add(x_BTD, pos_BT)

    def bind(self, view: View) -> BoundPositions:
        apart = view.q_pos[:, :, None] - view.k_pos[:, None, :]
        # The vectors of the distances that occur or, where there are more distances than vectors, all.
        distance_N = torch.arange(1 - view.longest, view.longest, device=apart.device)
        if len(distance_N) < 2 * self.span:
            row_N, index = self._row(distance_N), apart + view.longest - 1
        else:
            row_N, index = torch.arange(2 * self.span, device=apart.device), self._row(apart)
        vectors_ND: Tensor = self.table(row_N)
        return _BoundDistances(
            self, vectors_ND if self.norm is None else self.norm(vectors_ND), index[:, None]
        )

    def _row(self, distance: Tensor) -> Tensor:
        """The row of the table for a distance. The second half of the buckets widen logarithmically."""
        if self.spec.buckets is not None:
            near = self.spec.buckets // 2
            # In float32, as checkpoints were trained: another precision may round to the next bucket.
            size = distance.abs().clamp(min=1).float()
            widest = torch.tensor((self.spec.farthest - 1) / near, dtype=torch.float32, device=size.device)
            far = (size / near).log() / widest.log()
            bucket = ((far * (near - 1)).ceil() + near).long() * distance.sign()
            distance = torch.where(distance.abs() <= near, distance, bucket)
        return (distance + self.span).clamp(0, 2 * self.span - 1)


class _BoundDistances(BoundPositions):
    def __init__(
        self,
        scheme: _Disentangled,
        vectors_ND: Tensor,
        index_BHQK: Tensor,
        attention: Projections | None = None,
    ) -> None:
        self.scheme, self.vectors_ND, self.index_BHQK = scheme, vectors_ND, index_BHQK
        self.attention = attention

    def in_layer(self, attention: Projections) -> BoundPositions:
        if self.scheme.spec.project == "own":
            return self
        return _BoundDistances(self.scheme, self.vectors_ND, self.index_BHQK, attention)

    def bias(self, layer: int, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        scheme, heads = self.scheme, q_BHQE.shape[1]
        vectors_BND = scheme.dropout(self.vectors_ND)[None].type_as(q_BHQE)

        def scores(letter: str, x_BHTE: Tensor, index_BHTT: Tensor) -> Tensor:
            """Of tokens and the distances that they have to others."""
            vectors_BHNE = _per_head(self._projection(letter, layer)(vectors_BND), heads)
            all_BHTN = _per_head(x_BHTE, heads) @ vectors_BHNE.mT
            return all_BHTN.gather(-1, index_BHTT.expand(*all_BHTN.shape[:3], -1))

        terms = {
            "c2p": lambda: scores("k", q_BHQE, self.index_BHQK),
            "p2c": lambda: scores("q", k_BGKE, self.index_BHQK.mT).mT,
        }
        total: Tensor = sum(terms[term]() for term in scheme.spec.terms) * scheme.scale
        return total

    def _projection(self, letter: str, layer: int) -> Callable[[Tensor], Tensor]:
        """Vectors to the queries or keys of every head."""
        if self.attention is not None:
            return self.attention.queries if letter == "q" else self.attention.keys
        if self.scheme.spec.project == "layer":
            raise UnsupportedError(
                "Disentangled(project='layer') has a bias within a layer of attention only"
            )
        return getattr(self.scheme, letter)[layer]  # type: ignore[no-any-return]


def _per_head(x: Tensor, heads: int) -> Tensor:
    """(1, N, F) -> (1, H, N, E); or a key for each query head, where several share one."""
    if x.ndim == 3:
        return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
    return x.repeat_interleave(heads // x.shape[1], dim=1) if x.shape[1] != heads else x
