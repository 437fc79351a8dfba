"""Stops: the last new tokens of each candidate in, which of them have ended out.

Shape suffixes: C candidates, N their last new tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import InputError
from .records import Reason


class Stop:
    """When a text has ended. `reach` says how many of the last tokens it needs to see."""

    reason: ClassVar[Reason]

    @property
    def reach(self) -> int:
        return 1

    def hit(self, tail_CN: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class EndTokens(Stop):
    ids: tuple[int, ...]
    reason: ClassVar[Reason] = "end"

    def hit(self, tail_CN: Tensor) -> Tensor:
        last_C = tail_CN[:, -1]
        first, *others = (last_C == i for i in self.ids)
        return torch.stack([first, *others]).any(0) if others else first


@dataclass(frozen=True)
class StopStrings(Stop):
    """Ends a text as soon as one of these stands in it. `decode` makes text of ids; the prompt never counts.

    Only a window of tokens is decoded at each step: as many as the longest string has bytes, and a few.
    """

    texts: tuple[str, ...]
    decode: Callable[[Sequence[int]], str]
    reason: ClassVar[Reason] = "stop"

    def __post_init__(self) -> None:
        if not self.texts or not all(self.texts):
            raise InputError("a stop string must have at least one character")

    @property
    def reach(self) -> int:
        # Every token is at least one byte; special ones are none, so leave room for a few of these.
        return max(len(text.encode()) for text in self.texts) + 8

    def hit(self, tail_CN: Tensor) -> Tensor:
        said = [self.decode(ids) for ids in tail_CN.tolist()]
        found = [any(text in each for text in self.texts) for each in said]
        return torch.tensor(found, device=tail_CN.device)
