"""Settings of the benchmarks, as values that need no torch, so that `clearhead bench ... --help` is quick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

TrainingRows = Literal["ragged", "dense"]
"""Rows of the training benchmark: pairs of texts of all lengths, or full rows."""

TunedRows = Literal["dense", "ragged", "chats", "quantized"]
"""Rows of the tuning benchmark: of one length, as long as sentences, or prompts with answers; quantized are
these over quantized weights."""

TrainingPrecision = Literal["float32", "bfloat16"]
"""Precisions of the training benchmark."""

QUALITY_TASKS = ("recall", "listops", "text")
"""Tasks of the quality benchmark."""

DECODE_PEERS = {"transformers": "transformers", "transformers-bfloat16": "transformers",
                "ctranslate2": "ctranslate2", "llama.cpp": "xllamacpp"}  # fmt: skip
"""Peers of the decoding benchmark, and the packages they need."""


@dataclass(frozen=True)
class DecodeTask:
    """The work of each side: `tokens` new ids per row after a prompt or source of `prompt` random ids."""

    batch: int
    beams: int
    prompt: int
    tokens: int

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under the names that Clearhead and transformers share."""
        length = {"max_new_tokens": self.tokens, "min_new_tokens": self.tokens}
        return {**length, "num_beams": self.beams, "do_sample": False}


Decoder = Callable[[Sequence[list[int]], DecodeTask], list[list[int]]]
"""Takes the ids of the prompts and returns the new ids of each row."""


@dataclass(frozen=True)
class QualitySettings:
    """What all variants of the quality benchmark share."""

    steps: int = 200
    length: int = 64
    rows: int = 32  # per batch
    width: int = 64
    depth: int = 2
    heads: int = 4
    lr: float = 3e-3
    seed: int = 0
