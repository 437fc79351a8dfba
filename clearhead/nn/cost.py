"""Cost: what a part of a model costs. Shapes in; parameters, operations and bytes out. Nothing is allocated.

Every spec kind has a method `cost`: a closed formula beside the class it describes or, without one, the
default of its base class, which runs the module on torch's meta device (`counting.py`). Tests compare both
with torch's counter and with what autograd keeps.

How to write one, here for a kernel:

    def cost(self, at: AttentionShape) -> PartCost:
        rows, n = at.batch * at.heads, at.number
        scores = matmul_cost(rows, at.queries, at.head_dim, at.keys)
        return scores + PartCost(saved=n * rows * at.queries * at.keys)

- `flops` are those of `torch.utils.flop_counter`: matrix products and convolutions, two for each
  multiply-and-add; everything else counts nothing. `matmul_cost` computes them, forward and backward.
- `saved` are the bytes that autograd keeps from the forward pass to the backward pass, each tensor once. A
  part counts the tensors it makes inside; its input and its output are counted by the code around it, except
  for a kernel, which also counts what it keeps of queries, keys and values, and its output, and for a head,
  which also counts the states it is given. Without training it is not read.
- `parameters` are the numbers that the part itself learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceType = Literal["cpu", "cuda"]
Rule = Literal["open", "causal", "mask"]  # no mask, exactly the triangle, or a rendered mask
Bias = Literal["none", "fixed", "learned", "content"]  # content: learned, and dependent on the queries
INDEX_BYTES = 8  # bytes of an index


@dataclass(frozen=True)
class PartCost:
    parameters: int = 0
    flops: int = 0  # of the forward pass
    backward: int = 0  # flops of the backward pass
    saved: int = 0  # bytes kept between the two

    def __add__(self, other: PartCost) -> PartCost:
        return PartCost(
            self.parameters + other.parameters,
            self.flops + other.flops,
            self.backward + other.backward,
            self.saved + other.saved,
        )

    def times(self, count: int) -> PartCost:
        """`count` parts of this cost, each with parameters of its own."""
        return PartCost(*(count * x for x in (self.parameters, self.flops, self.backward, self.saved)))


def matmul_cost(times: int, rows: int, inner: int, columns: int) -> PartCost:
    """`times` products (rows, inner) @ (inner, columns); backward has one for each of the two factors."""
    flops = 2 * times * rows * inner * columns
    return PartCost(flops=flops, backward=2 * flops)


def linear_cost(vectors: int, inputs: int, outputs: int, *, bias: bool) -> PartCost:
    """A linear layer. Its input is kept, and counted by the part that made it."""
    return matmul_cost(1, vectors, inputs, outputs) + PartCost(parameters=outputs * (inputs + bias))


@dataclass(frozen=True, kw_only=True)
class CostSettings:
    """What every shape has besides its sizes."""

    training: bool = False
    number: int = 4  # bytes of one number of the hidden states
    device: DeviceType = "cpu"  # on a GPU fused attention has dropout inside, and dropout keeps flags

    def dropout_bytes(self, numbers: int, dropout: float) -> int:
        """The bytes that a dropout keeps: on the CPU the factors, on a GPU one flag each."""
        if not self.training or dropout == 0:
            return 0
        return numbers * (self.number if self.device == "cpu" else 1)


@dataclass(frozen=True, kw_only=True)
class CallShape(CostSettings):
    """How a model is called."""

    batch: int
    length: int  # tokens of a row; of the source, for an encoder-decoder
    target: int | None = None  # tokens of a row of the target; None: as many

    def hidden(self, width: int) -> HiddenShape:
        setting = {"training": self.training, "number": self.number, "device": self.device}
        return HiddenShape(batch=self.batch, length=self.length, width=width, **setting)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class HiddenShape(CostSettings):
    """Hidden states (batch, length, width) that a part is given."""

    batch: int
    length: int
    width: int
    lead: int = 0  # keys and values that are put before those of the tokens (prefix tuning)

    @property
    def keys(self) -> int:
        """How many keys a token attends to, if it attends to all."""
        return self.length + self.lead

    @property
    def vectors(self) -> int:
        return self.batch * self.length

    @property
    def bytes(self) -> int:
        return self.number * self.vectors * self.width


@dataclass(frozen=True, kw_only=True)
class AttentionShape(CostSettings):
    """Queries and keys of one layer: all that the cost of a kernel depends on."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    rule: Rule = "open"
    window: tuple[int, int] | None = None  # how many tokens back and ahead a query attends to
    causal: bool = False  # also where the rule is "mask"
    bias: Bias = "none"
    joined: bool = False  # queries were concatenated from parts, so they are not token by token in memory


@dataclass(frozen=True, kw_only=True)
class PositionCost:
    """What a position scheme costs, and what it does to queries and scores."""

    tower: PartCost = PartCost()  # its parameters, and what all layers share
    layer: PartCost = PartCost()  # of each layer of attention
    bias: Bias = "none"  # what it adds to the scores
    shared_bias: int = 0  # bytes of a bias for all layers, held only where layers are recomputed
    joined: bool = False  # as in AttentionShape
