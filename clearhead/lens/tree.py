"""The tree of a beam search: every hypothesis that was considered: kept, finished or pruned.

Each can be traced: what it looked at is computed when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ..errors import InputError
from .tokens import Token

T = TypeVar("T")  # the type of a trace


class Branch(NamedTuple):
    """One token of one hypothesis, when it was considered."""

    id: int
    parent: int  # the branch it continues; -1 for the beginning
    step: int
    token: Token
    logprob: float  # of this token alone
    score: float  # the sum so far
    fate: str  # kept, finished or pruned


@dataclass(frozen=True, eq=False)
class Tree(Generic[T]):
    branches: list[Branch]
    answers: list[tuple[list[int], float]]  # the finished ones, best first: the ids, and their score
    _retrace: Callable[[list[int]], T]

    def path(self, branch: int) -> list[Branch]:
        """A hypothesis from its first token to this one."""
        at = {b.id: b for b in self.branches}
        if branch not in at:
            raise InputError(f"there is no branch {branch}; there are {len(at)}")
        steps = [at[branch]]
        while steps[0].parent in at:
            steps.insert(0, at[steps[0].parent])
        return steps

    def trace(self, branch: int) -> T:
        """The trace of one hypothesis up to this branch: its attention, its frames, everything."""
        return self._retrace([b.token.id for b in self.path(branch)])

    def best(self, rank: int = 0) -> T:
        """The trace of a finished answer."""
        if not 0 <= rank < len(self.answers):
            raise InputError(f"there is no answer {rank}; beam search gave {len(self.answers)}")
        return self._retrace(self.answers[rank][0])
