"""Adaptive tables (Baevski 2018, Transformer-XL): frequent words get wide vectors, rare ones narrow vectors.

The vocabulary is cut into bands by `cutoffs`; ids are sorted by frequency. In the embedding, each band has a
table of its own width and a projection to the stream. The head first chooses a frequent word or a band, then
a word of the band; its output is log-probabilities.
Shape suffixes: B batch, T tokens, V words of a band, D width, F width of a band's table, C further bands.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import InputError, SpecError
from ...spec import Count, Rate
from ..cost import INDEX_BYTES, HiddenShape, PartCost, linear_cost, matmul_cost
from ..embed import Embed, Embedding, Tokens, check_ids
from ..heads import WordHead
from ..layers import Dropout, EmbeddingTable, LinearLayer

Band = tuple[Tensor, Tensor | None]
"""One band for the head: its table (V, F), and the projection (D, F) where there is one."""


@dataclass(frozen=True, kw_only=True)
class Adaptive(Embed):
    """Tables by frequency, each `shrink` times narrower than the one before; with 1, one table for all."""

    reads_ids: ClassVar[bool] = True

    vocab: Count
    cutoffs: tuple[int, ...]
    inner_width: Count  # of the first band's table
    shrink: int = 4
    scale: float = 1.0
    dropout: Rate = 0.0

    def check(self) -> None:
        _check_cutoffs(self.vocab, self.cutoffs)
        if self.shrink < 1 or self.inner_width // self.shrink ** len(self.cutoffs) < 1:
            raise SpecError(
                f"Adaptive.inner_width {self.inner_width} cannot be shrunk by {self.shrink} for each of "
                f"{len(self.cutoffs)} cutoffs"
            )

    @property
    def edges(self) -> tuple[int, ...]:
        """Where each table begins, and where the last one ends."""
        return (0, *self.cutoffs, self.vocab) if self.shrink > 1 else (0, self.vocab)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in pairwise(self.edges))

    def table_widths(self, width: int) -> tuple[int, ...]:
        return tuple(self.inner_width // self.shrink**i for i in range(len(self.sizes)))

    def projected(self, width: int) -> bool:
        """Whether tables are projected to the stream; one table as wide as the stream needs no projection."""
        return self.shrink > 1 or self.inner_width != width

    def example(self, batch: int, length: int, generator: torch.Generator) -> Tensor:
        return torch.randint(0, self.vocab, (batch, length), generator=generator)

    def build(self, width: int) -> Embedding:
        return AdaptiveEmbedding(self, width)

    def cost(self, shape: HiddenShape) -> PartCost:
        """Every token is looked up in every band: an index and a narrow vector each, and flags to choose."""
        vectors, width = shape.vectors, shape.width
        flags = vectors * (len(self.sizes) - 1)
        cost = PartCost(saved=shape.dropout_bytes(vectors * width, self.dropout) + flags)
        for size, narrow in zip(self.sizes, self.table_widths(width), strict=True):
            cost += PartCost(parameters=narrow * size, saved=INDEX_BYTES * vectors)
            if self.projected(width):
                cost += linear_cost(vectors, narrow, width, bias=False)
                cost += PartCost(saved=shape.number * vectors * narrow)
        return cost


class AdaptiveEmbedding(Embedding):
    def __init__(self, spec: Adaptive, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.edges, widths = spec.edges, spec.table_widths(width)
        self.tables = nn.ModuleList(EmbeddingTable(n, w) for n, w in zip(spec.sizes, widths, strict=True))
        ways = widths if spec.projected(width) else ()
        self.projects = nn.ModuleList(LinearLayer(w, width, bias=False) for w in ways)
        self.dropout = Dropout(spec.dropout)

    def forward(self, ids_BT: Tensor, types_BT: Tensor | None) -> Tensor:
        check_ids("ids", ids_BT, self.spec.vocab)
        if types_BT is not None:
            raise InputError("this model has no segment types; leave types (token_type_ids) out")
        x: Tensor | None = None
        for i, table in enumerate(self.tables):
            first, last = self.edges[i], self.edges[i + 1] - 1
            part = table((ids_BT - first).clamp(0, last - first))
            part = self.projects[i](part) if self.projects else part
            here = (ids_BT >= first) & (ids_BT <= last)
            x = part if x is None else torch.where(here[..., None], part, x)
        assert x is not None
        return x * self.spec.scale

    def finish(self, x_BTD: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(x_BTD)
        return dropped

    def tied_weights(self) -> tuple[Band, ...]:
        projects = list(self.projects.parameters())
        tables: list[Tensor] = list(self.tables.parameters())
        if self.spec.shrink == 1:  # one table, cut up for the head
            edges = (0, *self.spec.cutoffs, self.spec.vocab)
            tables = [tables[0][a:b] for a, b in pairwise(edges)]
            projects = projects * len(tables)
        return tuple((table, projects[i] if projects else None) for i, table in enumerate(tables))


@dataclass(frozen=True, kw_only=True)
class AdaptiveHead(WordHead):
    """Log-probabilities over the vocabulary (B, T, V), from the embedding's own tables, band by band."""

    vocab: Count
    cutoffs: tuple[int, ...] = ()
    inner_width: Count | None = None  # of the first band's table, where that is projected; None: the stream's

    def check(self) -> None:
        _check_cutoffs(self.vocab, self.cutoffs)

    def check_embedding(self, embed: Embed, table_width: int, width: int) -> None:
        fit = isinstance(embed, Tokens) and (embed.vocab, table_width, None) == (
            self.vocab,
            width,
            self.inner_width,
        )
        if isinstance(embed, Adaptive):
            wanted = (embed.vocab, embed.cutoffs, embed.inner_width if embed.projected(width) else None)
            fit = (self.vocab, self.cutoffs, self.inner_width) == wanted
        if not fit:
            raise SpecError(f"an adaptive head shares the embedding's tables; {self} does not fit {embed}")

    def build(self, width: int, table_width: int) -> nn.Module:
        return _AdaptiveHead(self, width)

    def cost(self, shape: HiddenShape, embed: Embed, width: int) -> PartCost:
        """The tables are the embedding's. Logarithms are kept of the first choice and of every band."""
        vectors, edges, further = shape.vectors, (0, *self.cutoffs, self.vocab), len(self.cutoffs)
        inner, projected = self.inner_width or shape.width, self.inner_width is not None
        cost = matmul_cost(1, vectors, inner, edges[1])
        cost += linear_cost(vectors, shape.width, inner, bias=False) if projected else PartCost()
        cost += linear_cost(vectors, inner, further, bias=True) if further else PartCost()
        kept = shape.width + projected * inner + further + self.vocab
        tables = embed.table_widths(width)
        for i, (first, end) in enumerate(pairwise(edges[1:]), start=1):
            # One table may be cut up for all bands.
            narrow = tables[min(i, len(tables) - 1)] if projected else shape.width
            cost += matmul_cost(1, vectors, narrow, end - first)
            if projected:
                cost += matmul_cost(1, vectors, shape.width, narrow)
                kept += narrow
        return cost + PartCost(parameters=self.vocab, saved=shape.number * vectors * kept)


class _AdaptiveHead(nn.Module):
    def __init__(self, spec: AdaptiveHead, width: int) -> None:
        super().__init__()
        self.edges = (0, *spec.cutoffs, spec.vocab)
        inner, further = spec.inner_width or width, len(spec.cutoffs)
        sizes = [b - a for a, b in pairwise(self.edges)]
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(n)) for n in sizes)
        # The first band is read through a projection of the head's own; the others share the embedding's.
        self.first = LinearLayer(width, inner, bias=False) if spec.inner_width else None
        self.further = LinearLayer(inner, further) if further else None

    def forward(self, x_BTD: Tensor, real_BT: Tensor | None, table: Tensor | tuple[Band, ...]) -> Tensor:
        bands = (
            table if isinstance(table, tuple) else tuple((table[a:b], None) for a, b in pairwise(self.edges))
        )
        inner = x_BTD if self.first is None else self.first(x_BTD)
        head = F.linear(inner, bands[0][0], self.biases[0])
        if self.further is None:
            return head.log_softmax(-1)
        chosen = torch.cat([head, self.further(inner)], dim=-1).log_softmax(-1)
        words = [chosen[..., : self.edges[1]]]
        for i, (table_VF, project_DF) in enumerate(bands[1:], start=1):
            narrow = x_BTD if project_DF is None else x_BTD @ project_DF
            within = F.linear(narrow, table_VF, self.biases[i]).log_softmax(-1)
            words.append(chosen[..., self.edges[1] + i - 1, None] + within)
        return torch.cat(words, dim=-1)


def _check_cutoffs(vocab: int, cutoffs: tuple[int, ...]) -> None:
    edges = (0, *cutoffs, vocab)
    if any(a >= b for a, b in pairwise(edges)):
        raise SpecError(f"cutoffs {cutoffs} must grow from above 0 to below the vocabulary of {vocab}")
