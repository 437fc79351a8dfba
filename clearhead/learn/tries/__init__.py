"""Experiments of ten seconds: a question in, a table of measured numbers and an answer out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import yaml

from ...errors import InputError, nearest
from ..language import Lang

# Where each is measured; named by strings, so that listing them does not import torch.
TRIES = {
    "scale": "heads:scale",
    "view-transpose": "heads:view_transpose",
    "pre-norm": "depth:pre_norm",
    "n-embd": "heads:n_embd",
    "layernorm-batchnorm": "depth:layernorm_batchnorm",
    "no-positions": "order:no_positions",
    "no-mask": "order:no_mask",
    "no-residual": "depth:no_residual",
    "dropout": "overfitting:dropout",
    "rnn-or-attention": "networks:rnn_or_attention",
    "scaling": "networks:scaling",
}


@dataclass(frozen=True)
class Try:
    name: str
    question: Mapping[Lang, str]
    answer: Mapping[Lang, str]
    seconds: int = 10  # about

    @property
    def measure(self) -> Callable[[int], Any]:
        """The experiment: a seed in, a `Finding` out."""
        module, function = TRIES[self.name].split(":")
        found: Callable[[int], Any] = getattr(import_module(f".{module}", __name__), function)
        return found


@lru_cache(1)
def tries() -> dict[str, Try]:
    words = yaml.safe_load((files(__name__) / "words.yaml").read_text(encoding="utf-8"))
    return {name: Try(name, **words[name]) for name in TRIES}


def find_try(name: str) -> Try:
    if name not in TRIES:
        raise InputError(f"there is no experiment {name!r}; {nearest(name, TRIES)}")
    return tries()[name]
