"""Errors: one line that says what was given, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher


class ClearheadError(Exception):
    """Everything this package raises on purpose. The command line prints it as one line and exits with 2."""


class SpecError(ClearheadError, ValueError):
    """A spec that cannot be built: an unknown word, a wrong type, sizes that do not fit."""


class InputError(ClearheadError, ValueError):
    """A tensor or a text that does not fit the door it came to."""


class DataError(ClearheadError, ValueError):
    """Rows that cannot be trained on: a broken file, a ragged row, a value of the wrong kind."""


class LoadError(ClearheadError, ValueError):
    """Files that cannot become a model: missing, broken, or not what their config says."""


class SaveError(ClearheadError, OSError):
    """A folder that cannot be written: no room, no permission, a file in its place. Nothing was changed."""


class TrainError(ClearheadError, RuntimeError):
    """A run that cannot begin or go on: another config, another trainer in its folder, no targets."""


class TrainingStopped(TrainError):  # noqa: N818 (it says what happened)
    """A loss or a gradient was not a finite number. The weights are those of the step before."""

    def __init__(self, message: str, *, step: int, tensor: str, checks: dict[str, str]) -> None:
        super().__init__(message)
        self.step, self.tensor, self.checks = step, tensor, checks


class MissingError(ClearheadError, ImportError):
    """A library that is an extra and not here."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install {package}")


class UnsupportedError(ClearheadError, NotImplementedError):
    """A kernel was asked for something it cannot honour."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """The tail of an error message: the closest known word, or all of them."""
    known = sorted(choices)
    best = max(known, key=lambda choice: _likeness(word, choice), default="")
    if _likeness(word, best) > 0.5:
        return f"did you mean {best!r}?"
    return f"known: {', '.join(known)}"


def _likeness(one: str, two: str) -> float:
    """0 to 1; the letters without their order count as well, because fingers swap them: tetha, theta."""
    one, two = one.lower(), two.lower()
    in_order = SequenceMatcher(None, one, two).ratio()
    swapped = SequenceMatcher(None, sorted(one), sorted(two)).ratio()
    return (in_order + swapped) / 2
