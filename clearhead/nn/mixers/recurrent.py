"""A recurrent cell (Hochreiter 1997, Cho 2014): one token after the other, with a state of fixed size.

A baseline for attention: every step waits for the previous one, and the state is one vector.
Shape suffixes: R texts, L tokens of the longest text, D width.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ...errors import SpecError
from ..attention import TokenMixer
from ..cache import State
from ..cost import HiddenShape, PartCost, PositionCost, linear_cost, matmul_cost
from ..kernels.kernel import Need
from ..layers import InitDistribution
from .sequential import SequentialMixer

GATES = {"lstm": 4, "gru": 3}
LOOP = 7  # numbers that a step of torch's own loop keeps for each of the state: gates, states, what is new
LINE, PAGE = 64, 4096  # bytes; oneDNN aligns rows to a line, tables to a page
ALIAS = 256  # rows of a multiple of this many numbers are padded: their starts would share cache sets


@dataclass(frozen=True, kw_only=True)
class Recurrent(TokenMixer):
    """`both_ways`: a second cell reads from the end of the text; for encoders only."""

    cell: Literal["lstm", "gru"] = "lstm"
    hidden: int | None = None  # None: as wide as the stream
    both_ways: bool = False

    def check(self) -> None:
        if self.hidden is not None and self.hidden < 1:
            raise SpecError(f"Recurrent.hidden is {self.hidden}, expected 1 or more")

    def build(self, width: int) -> SequentialMixer:
        return _Recurrent(self, width)

    def state(self, width: int) -> int:
        return (2 if self.cell == "lstm" else 1) * (self.hidden or width)

    def cost(self, shape: HiddenShape, *, causal: bool, positions: PositionCost) -> PartCost:
        """A cell for each direction, and the projection behind it.

        Flops are the matrix products of one step after the other. torch's counter sees them where torch runs
        the steps itself (a GRU on the CPU). An LSTM on the CPU is one call of oneDNN, in which the counter
        sees nothing; tests compare this formula with a loop of `nn.LSTMCell`.
        """
        width, hidden, ways = shape.width, self.hidden or shape.width, 1 + self.both_ways
        batch, length, vectors = shape.batch, shape.length, shape.vectors
        gates = GATES[self.cell] * hidden
        cell = matmul_cost(1, vectors, width, gates) + matmul_cost(1, vectors, hidden, gates)
        # The state before the first step has no gradient.
        cell = replace(cell, backward=cell.backward - matmul_cost(1, batch, hidden, gates).flops)
        cell += PartCost(parameters=gates * (width + hidden + 2))
        # Cells read (length, batch); the states are (batch, length), so they are copied.
        turned = batch > 1 and length > 1
        if self.cell == "lstm" and shape.device == "cpu" and shape.number <= 4:
            kept = ways * _kept_by_onednn(shape, hidden)
            kept += shape.number * vectors * hidden * (ways if turned or ways > 1 else 0)
        else:
            kept = shape.number * vectors * hidden * ways * (LOOP + 1)
        out = linear_cost(vectors, ways * hidden, width, bias=True)
        return cell.times(ways) + out + PartCost(saved=kept)


def _kept_by_onednn(shape: HiddenShape, hidden: int) -> int:
    """The output, both states at either end, and oneDNN's workspace: six tables of states and one of gates.

    Measured in float32. The size of cuDNN's workspace is unknown: there the numbers are those of
    torch's loop.
    """
    number, width, batch = shape.number, shape.width, shape.batch
    steps, states = number * shape.vectors, 2 * number * batch * (shape.length + 1)
    workspace = (
        _padded(steps * _row(4 * hidden, number))
        + _padded(steps * _row(hidden, number))
        + 3 * _padded(states * _row(max(width, hidden), number))
        + 2 * _padded(states * hidden)
    )
    return steps * hidden + 4 * number * batch * hidden + workspace


def _row(numbers: int, number: int) -> int:
    line = LINE // number
    padded = -(-numbers // line) * line
    return padded if padded % ALIAS else padded + line


def _padded(size: int) -> int:
    return -(-size // PAGE) * PAGE


class _LSTM(nn.LSTM):
    init_distribution: InitDistribution

    def reset_parameters(self) -> None:
        """Left empty on purpose: see layers.py. torch initialises both cells with this range."""
        self.init_distribution = InitDistribution((3 * self.hidden_size) ** -0.5, uniform=True)


class _GRU(nn.GRU):
    init_distribution: InitDistribution

    def reset_parameters(self) -> None:
        self.init_distribution = InitDistribution((3 * self.hidden_size) ** -0.5, uniform=True)


class _Recurrent(SequentialMixer):
    def __init__(self, spec: Recurrent, width: int) -> None:
        hidden = spec.hidden or width
        super().__init__((2 if spec.both_ways else 1) * hidden, width)
        cell = _LSTM if spec.cell == "lstm" else _GRU
        self.cell = cell(width, hidden, bidirectional=spec.both_ways)
        self.both_ways = spec.both_ways

    def require(self, needs: AbstractSet[Need]) -> None:
        super().require(needs)
        if self.both_ways and "causal" in needs:
            raise SpecError(
                "Recurrent(both_ways=True) reads from the end of the text; a decoder reads forwards"
            )

    def scan(
        self, x_RLD: Tensor, length_R: Tensor | None, state: State | None, *, causal: bool
    ) -> tuple[Tensor, State]:
        before = None if state is None else tuple(part.transpose(0, 1).contiguous() for part in state)
        start = before[0] if before is not None and isinstance(self.cell, nn.GRU) else before
        if length_R is None:
            # Contiguous: of other inputs torch computes the products in an order that depends on whether the
            # weights take a gradient.
            mixed_LRD, end = self.cell(x_RLD.transpose(0, 1).contiguous(), start)
            mixed = mixed_LRD.transpose(0, 1)
        else:
            lengths = length_R.clamp(min=1).cpu()
            packed = pack_padded_sequence(x_RLD, lengths, batch_first=True, enforce_sorted=False)
            walked, end = self.cell(packed, start)
            mixed, _ = pad_packed_sequence(walked, batch_first=True, total_length=x_RLD.shape[1])
        after = end if isinstance(end, tuple) else (end,)
        return mixed, tuple(part.transpose(0, 1) for part in after)
