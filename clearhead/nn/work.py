"""Work: what a part of a model costs, as a closed formula. Sizes in; parameters, operations and bytes out.

Nothing is built and nothing is run. The formulas of kernels stand beside the kernels
(`AttentionKernel.work`), those of all other parts in `lens/cost`; tests hold each against torch's counter
and against what autograd keeps.

How to write one for a kernel:

    def work(self, at: Meeting) -> Work:
        rows, n = at.batch * at.heads, at.number
        return product(rows, at.queries, at.head_dim, at.keys) + Work(saved=n * rows * at.queries * at.keys)

- `flops` are those of `torch.utils.flop_counter`: matrix products and convolutions, two for each
  multiply-and-add; everything else counts nothing. `product` makes them, forwards and backwards.
- `saved` are the bytes that autograd keeps from the forward pass to the backward pass, each tensor once. A
  kernel counts what it keeps of queries, keys and values, all it makes inside, and its answer, which the
  projection behind it keeps. It is asked for only when `at.training`.
- `parameters` are the numbers that the kernel itself learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Device = Literal["cpu", "cuda"]
Rule = Literal["open", "causal", "mask"]  # everyone, exactly the triangle, or a rendered mask
Bias = Literal["none", "fixed", "learned", "asked"]  # asked: learned, and another one for every query


@dataclass(frozen=True)
class Work:
    parameters: int = 0
    flops: int = 0  # of the forward pass
    backward: int = 0  # of the backward pass
    saved: int = 0  # bytes kept between the two

    def __add__(self, other: Work) -> Work:
        return Work(
            self.parameters + other.parameters,
            self.flops + other.flops,
            self.backward + other.backward,
            self.saved + other.saved,
        )

    def times(self, count: int) -> Work:
        """The same work `count` times, by `count` parts with parameters of their own."""
        return Work(*(count * value for value in (self.parameters, self.flops, self.backward, self.saved)))


def product(times: int, rows: int, inner: int, columns: int) -> Work:
    """`times` products (rows, inner) @ (inner, columns); backwards there is one for each of the factors."""
    flops = 2 * times * rows * inner * columns
    return Work(flops=flops, backward=2 * flops)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """How a model is called."""

    batch: int
    length: int  # tokens of a row; of the source, where there are two sides
    target: int | None = None  # tokens of a row of the target; None: as many
    training: bool = False
    number: int = 4  # bytes of one number of the stream
    device: Device = "cpu"  # where dropout inside of fused attention is possible, less is kept

    def noise(self, numbers: int, dropout: float) -> int:
        """The bytes that a dropout keeps: on the CPU the factors, on a graphics card a flag each."""
        if not self.training or dropout == 0:
            return 0
        return numbers * (self.number if self.device == "cpu" else 1)


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Queries meeting keys in one layer: all that the work of a kernel depends on."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    rule: Rule = "open"
    window: tuple[int, int] | None = None  # how far a query looks to each side, where that is a rule
    causal: bool = False  # nobody looks ahead, whatever else is a rule
    bias: Bias = "none"
    joined: bool = False  # queries were joined from parts, and no longer lie token by token in memory
    training: bool = False
    number: int = 4  # bytes of one number
    device: Device = "cpu"
