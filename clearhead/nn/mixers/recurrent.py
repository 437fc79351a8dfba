"""A recurrent cell (Hochreiter 1997, Cho 2014): one token after the other, with a memory of fixed size.

What attention is compared with: every step waits for the one before, all of the past is in one vector.
Shape suffixes: R texts, L tokens of the longest text, D width.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ...errors import SpecError
from ..attention import TokenMixer
from ..cache import State
from ..kernels.kernel import Need
from ..layers import Spread
from .walker import Walker


@dataclass(frozen=True, kw_only=True)
class Recurrent(TokenMixer):
    """`both_ways`: a second cell reads from the end of the text; for encoders only."""

    cell: Literal["lstm", "gru"] = "lstm"
    hidden: int | None = None  # None: as wide as the stream
    both_ways: bool = False

    def check(self) -> None:
        if self.hidden is not None and self.hidden < 1:
            raise SpecError(f"Recurrent.hidden is {self.hidden}, expected 1 or more")

    def build(self, width: int) -> Walker:
        return _Recurrent(self, width)

    def state(self, width: int) -> int:
        return (2 if self.cell == "lstm" else 1) * (self.hidden or width)


class _LSTM(nn.LSTM):
    first: Spread

    def reset_parameters(self) -> None:
        """Left empty on purpose: see layers.py. torch begins both cells with this spread."""
        self.first = Spread((3 * self.hidden_size) ** -0.5, uniform=True)


class _GRU(nn.GRU):
    first: Spread

    def reset_parameters(self) -> None:
        self.first = Spread((3 * self.hidden_size) ** -0.5, uniform=True)


class _Recurrent(Walker):
    def __init__(self, spec: Recurrent, width: int) -> None:
        hidden = spec.hidden or width
        super().__init__((2 if spec.both_ways else 1) * hidden, width)
        cell = _LSTM if spec.cell == "lstm" else _GRU
        self.cell = cell(width, hidden, batch_first=True, bidirectional=spec.both_ways)
        self.both_ways = spec.both_ways

    def require(self, asked: AbstractSet[Need]) -> None:
        super().require(asked)
        if self.both_ways and "causal" in asked:
            raise SpecError(
                "Recurrent(both_ways=True) reads from the end of the text; a decoder reads forwards"
            )

    def walk(
        self, x_RLD: Tensor, length_R: Tensor | None, state: State | None, *, causal: bool
    ) -> tuple[Tensor, State]:
        before = None if state is None else tuple(part.transpose(0, 1).contiguous() for part in state)
        start = before[0] if before is not None and isinstance(self.cell, nn.GRU) else before
        if length_R is None:
            mixed, end = self.cell(x_RLD, start)
        else:
            lengths = length_R.clamp(min=1).cpu()
            packed = pack_padded_sequence(x_RLD, lengths, batch_first=True, enforce_sorted=False)
            walked, end = self.cell(packed, start)
            mixed, _ = pad_packed_sequence(walked, batch_first=True, total_length=x_RLD.shape[1])
        after = end if isinstance(end, tuple) else (end,)
        return mixed, tuple(part.transpose(0, 1) for part in after)
