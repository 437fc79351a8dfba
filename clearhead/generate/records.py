"""What a run tells: one Step per turn of the loop, and at its end the hypotheses of every request.

Shape suffixes: R rows that are still speaking, A alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

Reason = Literal["end", "stop", "length"]
"""Why a text ended: an end token, a stop string, or no room left."""

Fate = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True)
class Hypothesis:
    """One answer: its new ids, the end token included, and what the model thought of each."""

    ids: list[int]
    logprobs: list[float]  # of the model itself, before any filter
    score: float  # beams: the sum of filtered log-probabilities over length ** penalty; else the plain sum
    reason: Reason

    @property
    def said(self) -> list[int]:
        """The ids without the end token."""
        return self.ids[:-1] if self.reason == "end" else self.ids


class Node(NamedTuple):
    """A hypothesis of beam search at the moment it was looked at: a node of the tree of all of them."""

    id: int
    parent: int  # the node it continues; -1 for the beginning
    request: int
    step: int
    token: int
    logprob: float
    score: float  # what it was ranked by: the sum so far
    fate: Fate


class Row(NamedTuple):
    """One of the answers to one request: sample or beam number `number`."""

    request: int
    number: int


@dataclass(frozen=True)
class Step:
    """What one turn decided for every row that was speaking."""

    rows: list[Row]
    tokens_R: Tensor
    logprobs_R: Tensor  # of the model itself, before any filter
    alternatives: tuple[Tensor, Tensor] | None = None  # (R, A) likeliest tokens and their log-probabilities
    nodes: tuple[Node, ...] = ()  # beams only, where a record was asked for
