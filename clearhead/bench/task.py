"""What the benches do, in values that need no torch, so that `clearhead bench ... --help` is quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["ragged", "dense"]
"""Training rows: pairs of texts of all lengths, or full rows."""

TASKS = ("recall", "listops", "text")
"""What the quality bench learns."""

Decoder = Callable[[], list[list[int]]]
"""Decodes once and gives the new ids of each row."""


@dataclass(frozen=True)
class Task:
    """What everyone does: go on from `prompt` random ids (or translate them), `tokens` new ones, per row."""

    batch: int
    beams: int
    prompt: int
    tokens: int

    @property
    def settings(self) -> dict[str, Any]:
        """Under the names that transformers and we share."""
        length = {"max_new_tokens": self.tokens, "min_new_tokens": self.tokens}
        return {**length, "num_beams": self.beams, "do_sample": False}


@dataclass(frozen=True)
class Setting:
    """What every variant of the quality bench shares."""

    steps: int = 200
    length: int = 64
    rows: int = 32  # a batch
    width: int = 64
    depth: int = 2
    heads: int = 4
    lr: float = 3e-3
    seed: int = 0
