"""What has been said so far: the ids of every row, in memory that was set aside when the run began.

Filters read it, stops look at its end, and hypotheses are cut out of it.
Shape suffixes: R rows, T tokens so far, N new tokens so far, C candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Said:
    """`limits_R` says how many new tokens each row may have."""

    def __init__(self, begun_RT: Tensor, real_RT: Tensor, limits_R: Tensor) -> None:
        rows, self.start = begun_RT.shape
        self.length, room = self.start, int(limits_R.max())
        self._ids = torch.cat([begun_RT, begun_RT.new_zeros(rows, room)], dim=1)
        self._real = torch.cat([real_RT, real_RT.new_ones(rows, room)], dim=1)
        self._logprobs = torch.zeros(rows, room, dtype=torch.float64, device=begun_RT.device)
        self._limits_R = limits_R

    @property
    def ids_RT(self) -> Tensor:
        """Prompt and answer; of an encoder-decoder what the decoder said, its start token included."""
        return self._ids[:, : self.length]

    @property
    def real_RT(self) -> Tensor:
        return self._real[:, : self.length]

    @property
    def new_RN(self) -> Tensor:
        return self._ids[:, self.start : self.length]

    @property
    def logprobs_RN(self) -> Tensor:
        return self._logprobs[:, : self.count]

    @property
    def last_R1(self) -> Tensor:
        return self._ids[:, self.length - 1 : self.length]

    @property
    def count(self) -> int:
        """How many new tokens there are."""
        return self.length - self.start

    @property
    def left_R(self) -> Tensor:
        """How many tokens each row may still say."""
        return self._limits_R - self.count

    def keep(self, rows_R: Tensor) -> None:
        """Go on with these rows, in this order."""
        self._ids, self._real = self._ids[rows_R], self._real[rows_R]
        self._logprobs, self._limits_R = self._logprobs[rows_R], self._limits_R[rows_R]

    @property
    def capacity(self) -> int:
        return self._ids.shape[1]

    def undo(self, count: int) -> None:
        """Take back the last tokens."""
        self.length -= count

    def add(self, tokens_R: Tensor, logprobs_R: Tensor) -> None:
        self._ids[:, self.length] = tokens_R
        self._logprobs[:, self.count] = logprobs_R
        self.length += 1

    def tail(self, parents_C: Tensor | slice, tokens_C: Tensor, reach: int) -> Tensor:
        """The last `reach` new tokens of each candidate, itself included; fewer where there are fewer."""
        if reach == 1:
            return tokens_C[:, None]
        first = max(self.start, self.length - reach + 1)
        return torch.cat([self._ids[parents_C, first : self.length], tokens_C[:, None]], dim=1)
