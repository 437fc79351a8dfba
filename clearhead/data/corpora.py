"""Built-in corpora: a name in, splits of rows out. Nothing is downloaded."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import InputError, nearest
from . import grammar, python_corpora
from .source import InMemorySource, Source

PYTHON = platform.python_version()
_TRAIN, _HELD_OUT, _SENTENCES = grammar.TRAIN_PAIRS, grammar.HELD_OUT_PAIRS, grammar.SENTENCES


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A built-in corpus, with what `clearhead data` prints about it."""

    name: str
    about: str
    shape: str  # text or pair
    size: str
    split: str
    licence: str
    make: Callable[[int], dict[str, list[dict[str, Any]]]]  # takes a seed, which the Python corpora ignore


CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="grammar-en-zh",
            about="English to Chinese by a small grammar: who does what to whom follows from the order",
            shape="pair",
            size=f"{_TRAIN:,} train / {_HELD_OUT} held-out pairs of {_SENTENCES:,}",
            split="a twentieth of all combinations of words, in any order, is held out, whatever the seed",
            licence="Apache-2.0",
            make=grammar.make,
        ),
        Corpus(
            name="python-docs",
            about=f"the help topics of Python {PYTHON}: for language models",
            shape="text",
            size="about 80 topics, half a million characters",
            split="an eighth of the topics, by hash",
            licence="PSF-2.0",
            make=python_corpora.topics,
        ),
        Corpus(
            name="python-code",
            about=f"sources of the standard library of Python {PYTHON}: for a code model",
            shape="text",
            size="a sample of about 4 million characters",
            split="a twelfth of the files, by hash",
            licence="PSF-2.0",
            make=python_corpora.code,
        ),
        Corpus(
            name="python-docstrings",
            about=f"what a function does -> its signature, from Python {PYTHON}",
            shape="pair",
            size="a few thousand pairs",
            split="a twelfth of the docstrings, by hash",
            licence="PSF-2.0",
            make=python_corpora.docstrings,
        ),
    )
}


def read_corpus(name: str, *, seed: int = 0) -> dict[str, Source]:
    """The splits of a built-in corpus: train and valid."""
    if name not in CORPORA:
        raise InputError(f"there is no built-in corpus {name!r}; {nearest(name, CORPORA)}")
    return {
        split: InMemorySource(rows, name=f"{name} ({split})", note="built in")
        for split, rows in _cached_splits(name, seed).items()
    }


@lru_cache(4)
def _cached_splits(name: str, seed: int) -> dict[str, list[dict[str, Any]]]:
    return CORPORA[name].make(seed)
