"""What a beam search looks at in one step: the likeliest continuations, and the tree that all of them make.

Shape suffixes: S requests still going, K candidates, N beams of a group, R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .records import Fate, Node

BLOCKED = float("-inf")


@dataclass(frozen=True)
class Candidates:
    """The likeliest continuations of one group of beams, for every request."""

    scores_SK: Tensor
    rows_SK: Tensor  # the row each continues
    tokens_SK: Tensor
    codes_SK: Tensor  # why it has ended, below zero where it goes on
    kept_SN: Tensor  # which of them go on

    @property
    def running_SN(self) -> Tensor:
        """The scores of those that go on; where too few are left, the rest is at -inf."""
        return going(self.scores_SK, self.codes_SK).gather(1, self.kept_SN)

    def kept(self, x_SK: Tensor) -> Tensor:
        return x_SK.gather(1, self.kept_SN)


def going(scores_SK: Tensor, codes_SK: Tensor) -> Tensor:
    """Scores of the candidates that go on; those that ended are at -inf."""
    return scores_SK.masked_fill(codes_SK >= 0, BLOCKED)


class Tree:
    """Every hypothesis that was looked at, with a number of its own."""

    def __init__(self, rows: int) -> None:
        self._at_R = [-1] * rows  # the node each row stands at
        self._count = 0

    def grow(
        self, groups: Sequence[Candidates], requests: Sequence[int], step: int, logp_RV: Tensor
    ) -> tuple[Node, ...]:
        """The nodes of one step, and what became of them; afterwards rows stand at those that were kept."""
        told: list[Node] = []
        at: list[list[int]] = [[] for _ in requests]
        for group in groups:
            columns = (group.rows_SK, group.tokens_SK, group.scores_SK, group.codes_SK, group.kept_SN)
            for s, found in enumerate(zip(*(x.tolist() for x in columns), strict=True)):
                rows, tokens, scores, codes, kept = found
                first = self._count + len(told)
                at[s] += [first + k for k in kept]
                for k, (row, token) in enumerate(zip(rows, tokens, strict=True)):
                    ended, best = codes[k] >= 0, k < len(kept)
                    fate: Fate = (
                        "finished" if ended and best else "kept" if k in kept and not ended else "pruned"
                    )
                    logprob = float(logp_RV[row, token])
                    parent = self._at_R[row]
                    told.append(Node(first + k, parent, requests[s], step, token, logprob, scores[k], fate))
        self._count += len(told)
        self._at_R = [node for each in at for node in each]
        return tuple(node for node in told if node.score > BLOCKED)

    def keep(self, rows: Sequence[int]) -> None:
        self._at_R = [self._at_R[row] for row in rows]
