"""An answer: what was said to a prompt, token by token, with what else could have been said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..generate.records import Node, Reason
from ..text.chat import Message

Asked = str | Sequence[Message]
"""A text to go on from, to translate or to sum up; or the messages of a chat."""


class Choice(NamedTuple):
    """A token that could have been said."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True)
class Token:
    """A token that was said. `text` is what it completed: nothing, where it is a part of a character."""

    id: int
    text: str
    logprob: float  # what the model gave it, before temperature and other filters
    alternatives: tuple[Choice, ...] = ()  # the likeliest at this place, where they were asked for


@dataclass(frozen=True)
class Answer:
    """The best answer to a prompt; `others` are the next best, where more than one was asked for."""

    prompt: str
    text: str
    tokens: tuple[Token, ...]  # the end token included
    score: float  # the sum of log-probabilities; of beams divided by length ** length_penalty
    reason: Reason  # why it ended: "end" token, "stop" string, or "length"
    others: tuple[Answer, ...] = ()
    tree: tuple[Node, ...] = ()  # every hypothesis that beam search looked at, where a record was asked for
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
        said: dict[str, Any] = {
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
            said["others"] = [
                {k: v for k, v in other.to_dict().items() if k != "prompt"} for other in self.others
            ]
        if self.tree:
            said["tree"] = [node._asdict() for node in self.tree]
        if self.notes:
            said["notes"] = list(self.notes)
        return said
