"""The work of a recurrent cell: its spec and the sizes of a call in, one Work out.

The operations are the matrix products of one step after the other. torch's counter sees them where torch
makes the steps itself (a GRU on the CPU). An LSTM on the CPU is one call of oneDNN, in which the counter sees
nothing; tests hold this formula against a loop of `nn.LSTMCell`, which it can count.

What is kept depends on who makes the steps. oneDNN keeps a workspace: six tables of states and one of gates,
with rows and pages filled up; measured in float32. cuDNN does not say how large its own is: on a graphics
card the numbers are those of torch's loop.
"""

from __future__ import annotations

from dataclasses import replace

from ...nn.mixers import Recurrent
from ...nn.work import Usage, Work, product
from .parts import linear

GATES = {"lstm": 4, "gru": 3}
LOOP = 7  # numbers that a step of torch's own loop keeps for each of the state: gates, states, what is new
LINE, PAGE = 64, 4096  # bytes; oneDNN begins a row at a line, a table at a page
ALIAS = 256  # it makes rows of a multiple of so many numbers longer: their beginnings would share cache sets


def recurrent(spec: Recurrent, width: int, batch: int, length: int, call: Usage) -> Work:
    """A cell for each way through the text, and the projection behind; the block counts the input."""
    hidden, ways, vectors = spec.hidden or width, 1 + spec.both_ways, batch * length
    gates = GATES[spec.cell] * hidden
    cell = product(1, vectors, width, gates) + product(1, vectors, hidden, gates)
    # Nobody asks for the gradient of the state before the first step.
    cell = replace(cell, backward=cell.backward - product(1, batch, hidden, gates).flops)
    cell += Work(parameters=gates * (width + hidden + 2))
    turned = batch > 1 and length > 1  # cells read step by step: text by text is another order, and a copy
    is_fused = spec.cell == "lstm" and call.device == "cpu" and call.number <= 4
    if is_fused:
        kept = ways * _kept_by_fused(width, hidden, batch, length, call.number)
        kept += call.number * vectors * hidden * (ways if turned or ways > 1 else 0)
    else:
        again = (ways - 1) * vectors * width if turned else 0  # the way back reads a copy of its own
        kept = call.number * (vectors * hidden * ways * (LOOP + 1) + again)
    return cell.times(ways) + linear(vectors, ways * hidden, width, bias=True) + Work(saved=kept)


def _kept_by_fused(width: int, hidden: int, batch: int, length: int, number: int) -> int:
    """The answer, both states at either end, and the workspace of oneDNN."""
    steps, states = number * batch * length, 2 * number * batch * (length + 1)
    workspace = (
        _filled(steps * _row(4 * hidden, number))
        + _filled(steps * _row(hidden, number))
        + 3 * _filled(states * _row(max(width, hidden), number))
        + 2 * _filled(states * hidden)
    )
    return steps * hidden + 4 * number * batch * hidden + workspace


def _row(numbers: int, number: int) -> int:
    line = LINE // number
    filled = -(-numbers // line) * line
    return filled if filled % ALIAS else filled + line


def _filled(size: int) -> int:
    return -(-size // PAGE) * PAGE
