"""Heads: the last hidden states in, the model's output out. Here the language-model head; see `label_heads`.

A model without a head returns the states.

Shape suffixes: B batch, T tokens, D width, V vocabulary, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import SpecError
from ..spec import Count, Positive, Spec
from .cost import HiddenShape, PartCost, linear_cost, matmul_cost
from .counting import FLOAT_BY_BYTES, count_cost
from .embed import Embed, Tokens
from .feedforward import ACTIVATION_SAVES, ACTIVATIONS, Activation
from .layers import LinearLayer, linear
from .norm import Norm, soft_cap
from .products import LayerProduct


class Head(Spec):
    """The spec of a head. Its module is called as `head(x_BTD, real_BT, table_VD)`.

    `real_BT` is True for tokens that are not padding; `table_VD` is the embedding table, for tied heads.
    """

    per_token: ClassVar[bool] = True  # it answers for every token, so that it needs a state of each

    def build(self, width: int, table_width: int) -> nn.Module:
        raise NotImplementedError

    def check_embedding(self, embed: Embed, table_width: int, width: int) -> None:
        """Raise a one-line error if this head cannot share the table of the embedding."""

    def cost(self, shape: HiddenShape, embed: Embed, width: int) -> PartCost:
        """`shape` is that of the last hidden states; `embed` and `width` are those of the tower.

        Unlike other parts, a head also counts its input, because not every head keeps it.
        """
        with torch.device("meta"):
            table = embed.build(width).to(FLOAT_BY_BYTES[shape.number]).tied_weights()
        size = (shape.batch, shape.length, shape.width)
        run = lambda head, x: head(x, None, table)  # noqa: E731
        build = lambda: self.build(shape.width, embed.table_widths(width)[0])  # noqa: E731
        # The table may be several tensors; they are the embedding's, so their bytes are not counted here.
        bands = table if isinstance(table, tuple) else ((table, None),)
        without = [x for band in bands for x in band if x is not None]
        return count_cost(
            self, build, run, [size], shape, inputs_count="here", outputs_count="saved", without=without
        )

    def outputs(self, shape: HiddenShape) -> int:
        """How many numbers a call returns."""
        return shape.vectors * int(getattr(self, "vocab", 0) or getattr(self, "count", shape.width))


@dataclass(frozen=True, kw_only=True)
class Transform(Spec):
    """A dense layer, an activation and a norm between the states and a projection (BERT's masked words)."""

    act: Activation = "gelu"
    norm: Norm | None = None
    # Of its output, where not that of the states (Reformer: of one stream) or of a tied table (RemBERT).
    width: Count | None = None
    bias: bool = True

    def cost(self, shape: HiddenShape, inner: int) -> PartCost:
        """Its input is kept. Its output is counted by the head, unless the norm keeps it."""
        besides, _ = ACTIVATION_SAVES[self.act]
        tensors = besides + (1 if self.norm is not None else 0)
        cost = linear_cost(shape.vectors, shape.width, inner, bias=self.bias)
        cost += PartCost(saved=shape.number * shape.vectors * (shape.width + tensors * inner))
        return cost if self.norm is None else cost + self.norm.cost(replace(shape, width=inner))


class WordHead(Head):
    """A language-model head: logits over the vocabulary at every token."""

    vocab: Count


@dataclass(frozen=True, kw_only=True)
class TokenHead(WordHead):
    """Logits over the vocabulary at every token (B, T, V), sharing the embedding table when `tied`."""

    vocab: Count
    tied: bool = True
    bias: bool = False
    scale: float = 1.0  # on the states (T5: width ** -0.5 when tied)
    cap: Positive | None = None  # squash logits into (-cap, cap) (Gemma 2)
    transform: Transform | None = None

    def inner_width(self, width: int, table_width: int) -> int:
        """The width of the vectors that are multiplied with the vocabulary."""
        return table_width if self.tied else (self.transform and self.transform.width) or width

    def build(self, width: int, table_width: int) -> nn.Module:
        return TokenLogits(self, width, table_width)

    def cost(self, shape: HiddenShape, embed: Embed, width: int) -> PartCost:
        vectors, inner = shape.vectors, self.inner_width(shape.width, embed.table_widths(width)[0])
        cost = matmul_cost(1, vectors, inner, self.vocab)
        cost += PartCost(parameters=self.vocab * (self.bias + (0 if self.tied else inner)))
        if self.transform is not None:
            cost += self.transform.cost(shape, inner)
        logits = 0 if self.cap is None else vectors * self.vocab  # tanh keeps its output
        return cost + PartCost(saved=shape.number * (vectors * inner + logits))

    def check_embedding(self, embed: Embed, table_width: int, width: int) -> None:
        if not self.tied:
            return
        if not isinstance(embed, Tokens) or embed.vocab != self.vocab:
            raise SpecError(
                f"a tied head needs the embedding's vocabulary; head {self.vocab}, embedding {embed}"
            )
        if self.transform is not None and (self.transform.width or table_width) != table_width:
            raise SpecError(
                f"a tied head reads {table_width} numbers, its transform has {self.transform.width}"
            )
        if table_width != width and self.transform is None:
            raise SpecError(
                f"the table is {table_width} wide, the stream {width}; a tied head needs a transform between"
            )


class TokenLogits(nn.Module):
    product: LayerProduct | None = None  # with the vocabulary, as a linear layer has one

    def __init__(self, spec: TokenHead, width: int, table_width: int) -> None:
        super().__init__()
        inner = spec.inner_width(width, table_width)
        self.scale, self.cap = spec.scale, spec.cap
        self.transform = TransformLayer(spec.transform, width, inner) if spec.transform else None
        # A tied head owns no matrix: it gets the table in each call, so the two cannot diverge.
        self.weight = None if spec.tied else nn.Parameter(torch.empty(spec.vocab, inner))
        self.bias = nn.Parameter(torch.zeros(spec.vocab)) if spec.bias else None

    def forward(self, x_BTD: Tensor, real_BT: Tensor | None, table_VD: Tensor) -> Tensor:
        x = x_BTD if self.transform is None else self.transform(x_BTD)
        weight = table_VD if self.weight is None else self.weight
        x = x if self.scale == 1.0 else x * self.scale
        return soft_cap(self.multiply(x, weight), self.cap)

    def multiply(self, x: Tensor, weight_VD: Tensor) -> Tensor:
        """The product with the vocabulary."""
        return linear(x, weight_VD, self.bias, self.product, training=self.training)


class TransformLayer(nn.Module):
    def __init__(self, spec: Transform, width: int, inner: int) -> None:
        super().__init__()
        self.dense = LinearLayer(width, inner, bias=spec.bias)
        self.act = ACTIVATIONS[spec.act]
        self.norm = spec.norm.build(inner) if spec.norm else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.dense(x))
        return x if self.norm is None else self.norm(x)
