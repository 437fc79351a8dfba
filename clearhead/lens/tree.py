"""The tree of a beam search: every hypothesis, whether kept, finished or pruned.

The trace of a hypothesis is computed on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ..errors import InputError
from .tokens import Token

T = TypeVar("T")  # the type of a trace


class Branch(NamedTuple):
    """One token of one hypothesis."""

    id: int
    parent: int  # the branch it continues; -1 for the first token
    step: int
    token: Token
    logprob: float  # of this token alone
    score: float  # sum of the log-probabilities so far
    fate: str  # kept, finished or pruned


@dataclass(frozen=True, eq=False)
class Tree(Generic[T]):
    branches: list[Branch]
    answers: list[tuple[list[int], float]]  # ids and score of the finished hypotheses, best first
    _retrace: Callable[[list[int]], T]  # traces the model on these ids

    def path(self, branch: int) -> list[Branch]:
        """The branches of a hypothesis from its first token to this one."""
        by_id = {b.id: b for b in self.branches}
        if branch not in by_id:
            raise InputError(f"there is no branch {branch}; there are {len(by_id)}")
        steps = [by_id[branch]]
        while steps[0].parent in by_id:
            steps.insert(0, by_id[steps[0].parent])
        return steps

    def trace(self, branch: int) -> T:
        """The trace of a hypothesis up to this branch."""
        return self._retrace([b.token.id for b in self.path(branch)])

    def best(self, rank: int = 0) -> T:
        """The trace of a finished answer."""
        if not 0 <= rank < len(self.answers):
            raise InputError(f"there is no answer {rank}; beam search returned {len(self.answers)}")
        return self._retrace(self.answers[rank][0])
