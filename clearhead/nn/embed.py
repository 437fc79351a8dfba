"""Embeddings: token ids in, vectors out.

In two steps, because positions are added between them: calling the module looks up the ids; `finish` applies
norm, dropout and, if the table is narrower than the model, a projection to the width of the model.
Shape suffixes: B batch, T tokens, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..spec import Amount, Count, Rate, Spec
from .cost import INDEX_BYTES, HiddenShape, PartCost, linear_cost
from .counting import count_cost
from .layers import Dropout, EmbeddingTable, LinearLayer
from .masked_tokens import MaskedZero
from .norm import Norm


class Embed(Spec):
    """The spec of an embedding. `table_width` is the width of the vectors before `finish`."""

    def table_width(self, width: int) -> int:
        return width

    def vector_width(self, width: int) -> int:
        """The width of the vectors that are looked up, before `complete`."""
        return self.table_width(width)

    def table_widths(self, width: int) -> tuple[int, ...]:
        """The widths of the token tables, in the order of the ids."""
        return (self.vector_width(width),)

    def build(self, width: int) -> Embedding:
        raise NotImplementedError

    @property
    def needs_whole_text(self) -> bool:
        """Whether the vector of a token depends on the other tokens, so that it cannot be decoded."""
        return False

    reads_ids: ClassVar[bool] = False  # whether its inputs are token ids, so that its outputs can be fed back

    def example(self, batch: int, length: int, generator: torch.Generator) -> Tensor:
        """A random input of this size."""
        raise NotImplementedError

    def cost(self, shape: HiddenShape) -> PartCost:
        """`shape` is that of the output."""
        inputs = self.example(shape.batch, shape.length, torch.Generator()).to("meta")
        run = lambda embed: embed.finish(embed(inputs, None))  # noqa: E731
        return count_cost(self, lambda: self.build(shape.width), run, [], shape)


class Embedding(nn.Module):
    """The module of an embedding spec."""

    def forward(self, inputs: Tensor, types_BT: Tensor | None) -> Tensor:
        raise NotImplementedError

    def complete(self, x_BTD: Tensor, types_BT: Tensor | None) -> Tensor:
        """Vectors of the width of the table, with what a call adds to those that it looks up."""
        return x_BTD

    def rescale(self, x_BTD: Tensor, inputs: Tensor, segment_BT: Tensor | None) -> Tensor:
        """The vectors as the other tokens of a text require; `segment_BT` is its number, -1 for padding."""
        return x_BTD

    def finish(self, x_BTD: Tensor) -> Tensor:
        raise NotImplementedError

    def tied_weights(self) -> Tensor | tuple[tuple[Tensor, Tensor | None], ...] | None:
        """What a tied head uses: the table, or several tables with their projections; `None` without one."""
        return None


EmbedOrder = Literal[
    "norm-dropout-project", "norm-project-dropout", "project-norm-dropout", "project-positions-norm-dropout",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tokens(Embed):
    """A table of vectors, one per id; `types` adds a second one for segments (BERT)."""

    reads_ids: ClassVar[bool] = True

    vocab: Count
    types: Amount = 0
    tasks: Amount = 0  # rows of a third table, one for each kind of task; every token gets row 0 (ERNIE 2)
    factor: Count | None = None  # width of the table, if narrower than the model (ALBERT)
    # The steps after the positions were added; OPT projects before. A projection before the norm has no bias.
    order: EmbedOrder = "norm-dropout-project"
    norm: Norm | None = None
    scale: float = 1.0  # the original and T5-like families multiply by sqrt(width)
    dropout: Rate = 0.0
    masked: MaskedZero | None = None  # None: the mask token has a vector like any other

    @property
    def needs_whole_text(self) -> bool:
        return self.masked is not None

    def table_width(self, width: int) -> int:
        return width if "project-positions" in self.order else self.factor or width

    def vector_width(self, width: int) -> int:
        return self.factor or width

    def example(self, batch: int, length: int, generator: torch.Generator) -> Tensor:
        return torch.randint(0, self.vocab, (batch, length), generator=generator)

    def build(self, width: int) -> TokenEmbedding:
        return TokenEmbedding(self, width)

    def cost(self, shape: HiddenShape) -> PartCost:
        vectors, inner = shape.vectors, replace(shape, width=self.table_width(shape.width))
        table = replace(shape, width=self.factor or shape.width)
        normed = shape if self.norms_last else inner
        dropped = inner if self.order.endswith("project") else shape
        cost = PartCost(
            parameters=table.width * (self.vocab + self.types + self.tasks),
            saved=INDEX_BYTES * (vectors * (self.types > 0) + (self.tasks > 0))
            + shape.dropout_bytes(vectors * dropped.width, self.dropout),
        )
        if self.masked is not None:
            cost += PartCost(saved=shape.number * vectors)
        if self.norm is not None:
            cost += self.norm.cost(normed) + PartCost(saved=normed.bytes)
        if self.factor is not None:
            linear = linear_cost(vectors, table.width, shape.width, bias=not self.norms_last)
            cost += linear + PartCost(saved=table.bytes)
        return cost

    @property
    def norms_last(self) -> bool:
        """Whether the norm is behind the projection."""
        return self.order.startswith("project")


class TokenEmbedding(Embedding):
    def __init__(self, spec: Tokens, width: int) -> None:
        super().__init__()
        narrow = spec.factor or width
        self.table = EmbeddingTable(spec.vocab, narrow)
        self.types = EmbeddingTable(spec.types, narrow) if spec.types else None
        self.tasks = EmbeddingTable(spec.tasks, narrow) if spec.tasks else None
        self.norm = spec.norm.build(width if spec.norms_last else narrow) if spec.norm else None
        self.project = LinearLayer(narrow, width, bias=not spec.norms_last) if spec.factor else None
        self.dropout = Dropout(spec.dropout)
        before, _, after = spec.order.rpartition("positions-")
        self.projects_first, self.steps = bool(before), after.split("-")
        self.scale, self.masked = spec.scale, spec.masked

    def forward(self, ids_BT: Tensor, types_BT: Tensor | None) -> Tensor:
        check_ids("ids", ids_BT, self.table.num_embeddings)
        x: Tensor = self.table(ids_BT)
        return self.complete(x if self.scale == 1.0 else x * self.scale, types_BT)

    def complete(self, x_BTD: Tensor, types_BT: Tensor | None) -> Tensor:
        """With the vectors of tasks and of segment types, and projected if that comes first."""
        x = self._with_types(x_BTD, types_BT)
        return self.project(x) if self.project is not None and self.projects_first else x

    def _with_types(self, x: Tensor, types_BT: Tensor | None) -> Tensor:
        if self.tasks is not None:
            x = x + self.tasks(torch.zeros(1, 1, dtype=torch.long, device=x.device))
        if self.types is None:
            if types_BT is not None:
                raise InputError("this model has no segment types; leave types (token_type_ids) out")
            return x
        if types_BT is None:
            types_BT = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        check_ids("types", types_BT, self.types.num_embeddings)
        if types_BT.shape != x.shape[:2]:
            raise InputError(f"types are {tuple(types_BT.shape)}, ids {tuple(x.shape[:2])}")
        kind: Tensor = self.types(types_BT)
        return x + kind

    def rescale(self, x_BTD: Tensor, inputs: Tensor, segment_BT: Tensor | None) -> Tensor:
        if self.masked is None:
            return x_BTD
        return self.masked.rescale(x_BTD, inputs, segment_BT)

    def tied_weights(self) -> Tensor:
        return self.table.weight

    def finish(self, x_BTD: Tensor) -> Tensor:
        x = x_BTD
        for name in self.steps:
            step = getattr(self, name)
            x = x if step is None else step(x)
        return x


def check_ids(what: str, ids_BT: Tensor, count: int) -> None:
    """Raise a one-line error for ids that cannot be looked up in a table of `count` rows."""
    if not isinstance(ids_BT, Tensor):
        raise InputError(f"{what} must be a tensor; given {type(ids_BT).__name__}: torch.tensor([[1, 2]])")
    if ids_BT.ndim != 2 or ids_BT.is_floating_point() or ids_BT.dtype == torch.bool:
        kind = str(ids_BT.dtype).removeprefix("torch.")
        raise InputError(
            f"{what} must be whole numbers of shape (batch, length); given {kind} {tuple(ids_BT.shape)}"
        )
    if ids_BT.numel() == 0:
        raise InputError(f"{what} are empty: {tuple(ids_BT.shape)}; give at least one token")
    if ids_BT.device.type != "cpu":
        return  # reading values would synchronise with the device in every call
    low, high = ids_BT.aminmax()
    if low < 0 or high >= count:
        bad = int(low if low < 0 else high)
        raise InputError(f"{what} contain {bad}; this model knows 0 to {count - 1}")
