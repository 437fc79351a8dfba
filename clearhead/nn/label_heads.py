"""Heads beside that of language models: labels of a text, tags of its tokens, a span, or one vector.

Shape suffixes: B batch, T tokens, D width, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..spec import Count, Rate
from .cost import INDEX_BYTES, HiddenShape, PartCost, linear_cost
from .embed import Embed
from .heads import Head, Transform, TransformLayer
from .layers import Dropout, LinearLayer

Pool = Literal["first", "last", "mean", "max"]


@dataclass(frozen=True, kw_only=True)
class Labels(Head):
    """Logits over classes for a whole text (B, C), computed from one pooled vector."""

    per_token: ClassVar[bool] = False

    count: Count
    pool: Pool = "first"
    transform: Transform | None = None  # BERT's pooler is one with act="tanh"
    pool_at: Literal["states", "transformed"] = "states"  # before the transform, or after it (EuroBERT)
    bias: bool = True
    dropout: Rate = 0.0

    def build(self, width: int, table_width: int) -> nn.Module:
        return _Classes(self, width, pool=self.pool, late=self.pool_at == "transformed")

    def cost(self, shape: HiddenShape, embed: Embed, width: int) -> PartCost:
        one = replace(shape, length=1)  # one vector per text
        inner = (self.transform and self.transform.width) or shape.width
        cost = linear_cost(one.vectors, inner, self.count, bias=self.bias)
        if self.transform is not None:
            cost += self.transform.cost(shape if self.pool_at == "transformed" else one, inner)
        numbers = one.vectors * inner
        kept = shape.number * numbers + shape.dropout_bytes(numbers, self.dropout)
        pooled = replace(shape, width=inner) if self.pool_at == "transformed" else shape
        return cost + PartCost(saved=kept + _pooling_bytes(self.pool, pooled))

    def outputs(self, shape: HiddenShape) -> int:
        return shape.batch * self.count


@dataclass(frozen=True, kw_only=True)
class Tags(Head):
    """Logits over classes for every token (B, T, C)."""

    count: Count
    transform: Transform | None = None  # (ModernBERT)
    bias: bool = True
    dropout: Rate = 0.0

    def build(self, width: int, table_width: int) -> nn.Module:
        return _Classes(self, width)

    def cost(self, shape: HiddenShape, embed: Embed, width: int) -> PartCost:
        return _tag_cost(self, shape)


@dataclass(frozen=True, kw_only=True)
class Span(Head):
    """Logits for the first and the last token of an answer (B, T, 2)."""

    count: Literal[2] = 2
    transform: Transform | None = None  # (ModernBERT)
    bias: bool = True
    dropout: Rate = 0.0

    def build(self, width: int, table_width: int) -> nn.Module:
        return _Classes(self, width)

    def cost(self, shape: HiddenShape, embed: Embed, width: int) -> PartCost:
        return _tag_cost(self, shape)


@dataclass(frozen=True, kw_only=True)
class Pooled(Head):
    """One vector for a whole text (B, count): a pooled, perhaps projected and normalised state."""

    per_token: ClassVar[bool] = False

    count: Count | None = None  # None: no projection, the vector has the model's width
    pool: Pool = "mean"
    unit: bool = False  # scaled to length one

    def build(self, width: int, table_width: int) -> nn.Module:
        return _Pooled(self, width)

    def cost(self, shape: HiddenShape, embed: Embed, width: int) -> PartCost:
        linear = linear_cost(shape.batch, shape.width, self.count, bias=False) if self.count else PartCost()
        kept = shape.width if self.count else 0
        unit = (self.count or shape.width) + 2 if self.unit else 0  # the vector, and its length twice
        pooling = _pooling_bytes(self.pool, shape)
        return linear + PartCost(saved=shape.number * shape.batch * (kept + unit) + pooling)

    def outputs(self, shape: HiddenShape) -> int:
        return shape.batch * (self.count or shape.width)


class _Classes(nn.Module):
    def __init__(
        self, spec: Labels | Tags | Span, width: int, *, pool: Pool | None = None, late: bool = False
    ) -> None:
        super().__init__()
        self.pool, self.late, transform = pool, late, spec.transform
        inner = transform.width or width if transform else width
        self.transform = TransformLayer(transform, width, inner) if transform else None
        self.dropout = Dropout(spec.dropout)
        self.project = LinearLayer(inner, spec.count, bias=spec.bias)

    def forward(self, x_BTD: Tensor, real_BT: Tensor | None, table_VD: Tensor) -> Tensor:
        x = x_BTD if self.pool is None or self.late else pool_states(x_BTD, self.pool, real_BT)
        x = x if self.transform is None else self.transform(x)
        if self.pool is not None and self.late:
            x = pool_states(x, self.pool, real_BT)
        logits: Tensor = self.project(self.dropout(x))
        return logits


class _Pooled(nn.Module):
    def __init__(self, spec: Pooled, width: int) -> None:
        super().__init__()
        self.pool, self.unit = spec.pool, spec.unit
        self.project = LinearLayer(width, spec.count, bias=False) if spec.count else None

    def forward(self, x_BTD: Tensor, real_BT: Tensor | None, table_VD: Tensor) -> Tensor:
        x = pool_states(x_BTD, self.pool, real_BT)
        x = x if self.project is None else self.project(x)
        return F.normalize(x, dim=-1) if self.unit else x


def _tag_cost(spec: Tags | Span, shape: HiddenShape) -> PartCost:
    inner = (spec.transform and spec.transform.width) or shape.width
    numbers = shape.vectors * inner
    kept = shape.number * numbers + shape.dropout_bytes(numbers, spec.dropout)
    cost = linear_cost(shape.vectors, inner, spec.count, bias=spec.bias) + PartCost(saved=kept)
    return cost if spec.transform is None else cost + spec.transform.cost(shape, inner)


def _pooling_bytes(pool: Pool, shape: HiddenShape) -> int:
    """Bytes saved for the backward pass of pooling: which token was taken, or which are real."""
    if pool in ("first", "last"):
        return 2 * INDEX_BYTES * shape.batch
    return shape.vectors + INDEX_BYTES * shape.batch * (shape.width if pool == "max" else 1)


def pool_states(x_BTD: Tensor, pool: Pool, real_BT: Tensor | None) -> Tensor:
    """One vector per row, from its real tokens only, wherever the padding stands."""
    if real_BT is None:
        real_BT = torch.ones(x_BTD.shape[:2], dtype=torch.bool, device=x_BTD.device)
    slot = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    rows = torch.arange(x_BTD.shape[0], device=x_BTD.device)
    if pool == "first":
        return x_BTD[rows, real_BT.long().argmax(1)]
    if pool == "last":
        return x_BTD[rows, torch.where(real_BT, slot, -1).max(1).values.clamp(min=0)]
    weight_BT1 = real_BT[..., None]
    if pool == "max":
        return x_BTD.masked_fill(~weight_BT1, torch.finfo(x_BTD.dtype).min).max(1).values
    return (x_BTD * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)
