"""Errors: one line that says what was given, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ClearheadError(Exception):
    """Everything this package raises on purpose. The command line prints it as one line and exits with 2."""


class SpecError(ClearheadError, ValueError):
    """A spec that cannot be built: an unknown word, a wrong type, sizes that do not fit."""


class InputError(ClearheadError, ValueError):
    """A tensor at the door of a model that does not fit it."""


class UnsupportedError(ClearheadError, NotImplementedError):
    """A kernel was asked for something it cannot honour."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """The tail of an error message: the closest known word, or all of them."""
    known = sorted(choices)
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
