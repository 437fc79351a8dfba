"""Where the hypotheses of a beam search go when they have ended: the best few, until no better can come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .records import Hypothesis

Early = bool | Literal["never"]
"""When a request is done, once it has as many ended hypotheses as beams: True at once; False when the best
running one would not beat the worst of them at its length; "never" when it could not at any length."""


@dataclass
class Pool:
    """The ended hypotheses of one group of beams, best first, and whether it still takes any."""

    size: int
    early: Early
    penalty: float
    limit: int
    ended: list[Hypothesis] = field(default_factory=list)
    open: bool = True

    @property
    def full(self) -> bool:
        return len(self.ended) == self.size

    def take(self, ended: Hypothesis) -> None:
        self.ended = sorted([*self.ended, ended], key=lambda h: h.score, reverse=True)[: self.size]

    def close(self, best: float, length: int) -> None:
        """Closes when the best running sum, at `length` tokens, cannot or need not be waited for."""
        reach = self.limit if self.early == "never" and self.penalty > 0 else length
        hopeless = self.full and best / reach**self.penalty <= self.ended[-1].score
        if best == float("-inf") or hopeless or (self.full and self.early is True):
            self.open = False
