"""What a run keeps and returns: the token buffer of the rows, a `Step` per token, and the results at the end.

TokenBuffer                       ids and log-probabilities so far; filters and stops read it
Step, Node                        what one step of the loop decided
Hypothesis, GenerationResult      ids with their scores, per sequence and per request
Answer                            the same as text

Shape suffixes: R rows, T tokens so far, N new tokens so far, C candidates, A alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Reason = Literal["end", "stop", "length"]
"""Why a sequence ended: an end token, a stop string, or the length limit."""

Fate = Literal["kept", "finished", "pruned"]


class TokenBuffer:
    """Ids of all rows, in memory allocated when the run starts. `limits_R`: new tokens allowed per row."""

    def __init__(self, prompt_RT: Tensor, real_RT: Tensor, limits_R: Tensor) -> None:
        rows, self.start = prompt_RT.shape
        self.length, room = self.start, int(limits_R.max())
        self._ids = torch.cat([prompt_RT, prompt_RT.new_zeros(rows, room)], dim=1)
        self._real = torch.cat([real_RT, real_RT.new_ones(rows, room)], dim=1)
        self._logprobs = torch.zeros(rows, room, dtype=torch.float64, device=prompt_RT.device)
        self._limits_R = limits_R

    @property
    def ids_RT(self) -> Tensor:
        """Prompt and new tokens; of an encoder-decoder the decoder's ids, its start token included."""
        return self._ids[:, : self.length]

    @property
    def real_RT(self) -> Tensor:
        """Which of `ids_RT` are not padding."""
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
    def remaining_R(self) -> Tensor:
        """How many more tokens each row may get."""
        return self._limits_R - self.count

    @property
    def capacity(self) -> int:
        return self._ids.shape[1]

    def append(self, tokens_R: Tensor, logprobs_R: Tensor) -> None:
        self._ids[:, self.length] = tokens_R
        self._logprobs[:, self.count] = logprobs_R
        self.length += 1

    def rollback(self, count: int) -> None:
        """Drop the last tokens."""
        self.length -= count

    def reorder(self, rows_R: Tensor) -> None:
        """Continue with these rows, in this order."""
        self._ids, self._real = self._ids[rows_R], self._real[rows_R]
        self._logprobs, self._limits_R = self._logprobs[rows_R], self._limits_R[rows_R]

    def tail(self, parents_C: Tensor | slice, tokens_C: Tensor, lookback: int) -> Tensor:
        """The last `lookback` new tokens of each candidate, its own included; fewer if there are fewer."""
        if lookback == 1:
            return tokens_C[:, None]
        first = max(self.start, self.length - lookback + 1)
        return torch.cat([self._ids[parents_C, first : self.length], tokens_C[:, None]], dim=1)


@dataclass(frozen=True)
class Hypothesis:
    """One generated sequence: its new ids, the end token included, and their log-probabilities."""

    ids: list[int]
    logprobs: list[float]  # of the model itself, before any filter
    score: float  # beams: the sum of filtered log-probabilities over length ** penalty; else the plain sum
    reason: Reason

    @property
    def text_ids(self) -> list[int]:
        """The ids without the end token."""
        return self.ids[:-1] if self.reason == "end" else self.ids


class Node(NamedTuple):
    """A hypothesis that beam search considered in one step: a node of the search tree."""

    id: int
    parent: int  # the node it continues; -1 for the prompt
    request: int
    step: int
    token: int
    logprob: float
    score: float  # what it was ranked by: the sum so far
    fate: Fate


class SequenceId(NamedTuple):
    """One of the sequences of one request: sample or beam number `number`."""

    request: int
    number: int


@dataclass(frozen=True)
class Step:
    """What one step decided for every row that was still running."""

    rows: list[SequenceId]
    tokens_R: Tensor
    logprobs_R: Tensor  # of the model itself, before any filter
    alternatives: tuple[Tensor, Tensor] | None = None  # (R, A) most likely tokens, their log-probabilities
    nodes: tuple[Node, ...] = ()  # beam search only, if a record was requested


@dataclass(frozen=True)
class GenerationResult:
    """Everything generated for one request, best first."""

    hypotheses: list[Hypothesis]
    # Per hypothesis and token: ids and log-probabilities of the most likely tokens.
    alternatives: list[list[tuple[list[int], list[float]]]]
    tree: tuple[Node, ...]


class Choice(NamedTuple):
    """A token that could have been chosen."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True)
class GeneratedToken:
    """A generated token. `text` is what it completes: empty if it is only part of a character."""

    id: int
    text: str
    logprob: float  # from the model, before temperature and other filters
    alternatives: tuple[Choice, ...] = ()  # the most likely tokens at this position, if requested


@dataclass(frozen=True)
class Answer:
    """The best text generated for a prompt; `others` are the next best, if several were requested."""

    prompt: str
    text: str
    tokens: tuple[GeneratedToken, ...]  # the end token included
    score: float  # the sum of log-probabilities; with beams divided by length ** length_penalty
    reason: Reason  # why it ended: "end" token, "stop" string, or "length"
    others: tuple[Answer, ...] = ()
    tree: tuple[Node, ...] = ()  # every hypothesis that beam search considered, if a record was requested
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def ids(self) -> list[int]:
        """The new ids, the end token included."""
        return [token.id for token in self.tokens]

    @property
    def logprob(self) -> float:
        """The log-probability of the whole answer, its end included."""
        return sum(token.logprob for token in self.tokens)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        values: dict[str, Any] = {
            "prompt": self.prompt,
            "text": self.text,
            "score": self.score,
            "logprob": self.logprob,
            "reason": self.reason,
            "tokens": [
                {"id": t.id, "text": t.text, "logprob": t.logprob}
                | ({"alternatives": [c._asdict() for c in t.alternatives]} if t.alternatives else {})
                for t in self.tokens
            ],
        }
        if self.others:
            values["others"] = [
                {k: v for k, v in other.to_dict().items() if k != "prompt"} for other in self.others
            ]
        if self.tree:
            values["tree"] = [node._asdict() for node in self.tree]
        if self.notes:
            values["notes"] = list(self.notes)
        return values
