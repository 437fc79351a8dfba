"""The complexity table with real numbers: a tower and a length in, one row for each kind of layer out.

Beside the parts of a Transformer layer stand a recurrent and a convolutional layer of the same width. The
table that is often shown has n^2 d against n d^2 alone: it leaves out the projections, which below n = 2 d
cost more than the attention they serve, and the feed-forward layer, which costs as much as both at n = 2 d.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError
from ...nn import Attention, CallShape, PartCost, Tower, linear_cost, matmul_cost

TAPS = 3  # the width of the convolution beside


@dataclass(frozen=True)
class LayerComplexity:
    part: str
    order: str  # as a formula of n tokens, width d
    parameters: int
    flops: int  # of one layer, forwards, for one text
    numbers: int  # made on the way, where nothing is fused
    steps: int  # that must be done one after another
    path: int  # layers or steps between the two tokens furthest apart; 0: they do not meet


def complexity_table(spec: Tower, length: int) -> list[LayerComplexity]:
    """One layer of this tower over one text."""
    n, d = length, spec.width
    block = spec.pattern[0]
    attention, shape = block.attention, CallShape(batch=1, length=n).hidden(d)
    if not isinstance(attention, Attention):
        kind = type(attention).__name__
        raise InputError(f"the table is about attention, and this model has {kind} in its place")
    head, groups = attention.head_width(d), attention.kv_heads or attention.heads
    value = attention.value_dim or head
    mix = attention.kernel.cost(attention.call_shape(d, 1, n, n))
    plain = PartCost()
    projections = sum(
        (
            linear_cost(n, d, attention.heads * head, bias="q" in attention.bias),
            linear_cost(n, d, groups * head, bias="k" in attention.bias),
            linear_cost(n, d, groups * value, bias="v" in attention.bias),
            linear_cost(n, attention.heads * value, d, bias="o" in attention.bias),
        ),
        plain,
    )
    wide = block.feedforward.cost(shape)
    hidden = getattr(block.feedforward, "hidden", d)
    kept = n * (attention.heads * (head + value) + groups * (head + value))
    recurrent = matmul_cost(1, n, d, d).times(2)
    kernel = matmul_cost(1, n, TAPS * d, d)
    return [
        LayerComplexity("scores and mix", "n^2 d", mix.parameters, mix.flops, attention.heads * n * n, 1, 1),
        LayerComplexity("projections", "n d^2", projections.parameters, projections.flops, kept, 1, 1),
        LayerComplexity("feed-forward", "n d h", wide.parameters, wide.flops, n * hidden, 1, 0),
        LayerComplexity("recurrent", "n d^2", 2 * d * d + 2 * d, recurrent.flops, n * d, n, n),
        LayerComplexity(
            "convolution", f"{TAPS} n d^2", TAPS * d * d + d, kernel.flops, n * d, 1, -(-n // (TAPS - 1))
        ),
    ]


def crossing(rows: list[LayerComplexity], length: int) -> int:
    """From how many tokens on the scores and their mix cost more than the projections."""
    mix, projections = rows[0], rows[1]
    return -(-projections.flops * length // mix.flops)
