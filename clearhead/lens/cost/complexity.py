"""The complexity table with real numbers: a tower and a length in, one row for each kind of layer out.

The parts of a Transformer layer are compared with a recurrent and a convolutional layer of the same width.
The usual table has only n^2 d against n d^2: it omits the projections, which cost more than the scores and
the weighted sum below n = 2 d, and the feed-forward layer, which costs as much as both at n = 2 d.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError
from ...nn import Attention, CallShape, PartCost, Tower, linear_cost, matmul_cost

TAPS = 3  # kernel width of the convolution


@dataclass(frozen=True)
class LayerComplexity:
    part: str
    order: str  # as a formula of n tokens, width d
    parameters: int
    flops: int  # of one layer, forward pass, one text
    numbers: int  # size of the intermediate results without fused kernels
    steps: int  # sequential operations
    path: int  # maximum path length between two tokens; 0: they do not interact


def complexity_table(spec: Tower, length: int) -> list[LayerComplexity]:
    """The rows for one layer of this tower and one text."""
    n, d = length, spec.width
    block = spec.pattern[0]
    attention, shape = block.attention, CallShape(batch=1, length=n).hidden(d)
    if not isinstance(attention, Attention):
        kind = type(attention).__name__
        raise InputError(f"the complexity table needs attention; this model has {kind} instead")
    head, groups = attention.head_width(d), attention.kv_heads or attention.heads
    value = attention.value_dim or head
    mix = attention.kernel.cost(attention.call_shape(d, 1, n, n))
    projections = sum(
        (
            linear_cost(n, d, attention.heads * head, bias="q" in attention.bias),
            linear_cost(n, d, groups * head, bias="k" in attention.bias),
            linear_cost(n, d, groups * value, bias="v" in attention.bias),
            linear_cost(n, attention.heads * value, d, bias="o" in attention.bias),
        ),
        PartCost(),
    )
    feedforward = block.feedforward.cost(shape)
    hidden = getattr(block.feedforward, "hidden", d)
    projected = n * (attention.heads * (head + value) + groups * (head + value))
    recurrent = matmul_cost(1, n, d, d).times(2)
    convolution = matmul_cost(1, n, TAPS * d, d)
    return [
        LayerComplexity("scores and mix", "n^2 d", mix.parameters, mix.flops, attention.heads * n * n, 1, 1),
        LayerComplexity("projections", "n d^2", projections.parameters, projections.flops, projected, 1, 1),
        LayerComplexity("feed-forward", "n d h", feedforward.parameters, feedforward.flops, n * hidden, 1, 0),
        LayerComplexity("recurrent", "n d^2", 2 * d * d + 2 * d, recurrent.flops, n * d, n, n),
        LayerComplexity(
            "convolution", f"{TAPS} n d^2", TAPS * d * d + d, convolution.flops, n * d, 1, -(-n // (TAPS - 1))
        ),
    ]


def crossing(rows: list[LayerComplexity], length: int) -> int:
    """The length from which the scores and the weighted sum cost more than the projections."""
    mix, projections = rows[0], rows[1]
    return -(-projections.flops * length // mix.flops)
