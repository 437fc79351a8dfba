"""What everyone does in a decoding bench, and the face of whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
