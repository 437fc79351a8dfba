"""Errors: one line with what was given, what was expected, and what to do.

Messages quote values from untrusted files. So the base class itself makes every message one printable
line of bounded length: no terminal escapes, no line breaks, no page of text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

MAX_MESSAGE_LENGTH = 300  # characters of a message
LONG_PATH = re.compile(r"(?:/[^/\s'\",;:]+){2,}/([^/\s'\",;:]+/[^/\s'\",;:]+)")


class ClearheadError(Exception):
    """Everything this package raises on purpose. The command line prints it as one line and exits with 2."""

    max_length = MAX_MESSAGE_LENGTH

    def __init__(self, message: object = "") -> None:
        super().__init__(shortened(one_line(str(message)), self.max_length))


class SpecError(ClearheadError, ValueError):
    """A spec that cannot be built: an unknown name, a wrong type, sizes that do not fit."""


class InputError(ClearheadError, ValueError):
    """A tensor, a text or an argument that a function cannot take."""


class DataError(ClearheadError, ValueError):
    """Rows that cannot be trained on: a broken file, a ragged row, a value of the wrong kind."""


class LoadError(ClearheadError, ValueError):
    """Files that cannot become a model: missing, broken, or not what their config says."""


class SaveError(ClearheadError, OSError):
    """A folder that cannot be written: disk full, no permission, a file in its place. Nothing was changed."""


class TrainError(ClearheadError, RuntimeError):
    """A run that cannot start or continue: another config, another trainer in its folder, no targets."""


class TrainingStopped(TrainError):  # noqa: N818 (it says what happened)
    """A loss or a gradient was not a finite number. The weights are those of the step before."""

    max_length = 2000  # it lists what to check, in its own format

    def __init__(self, message: str, *, step: int, tensor: str, checks: dict[str, str]) -> None:
        super().__init__(message)
        self.step, self.tensor, self.checks = step, tensor, checks


class MissingError(ClearheadError, ImportError):
    """An optional library that is not installed."""

    def __init__(self, package: str, purpose: str) -> None:
        clone = package.replace("clearhead[", ".[")  # there the package has no name that pip knows
        more = f" (in a clone: pip install {clone})" if clone != package else ""
        super().__init__(f"{purpose} needs {package}: pip install {package}{more}")


class UnsupportedError(ClearheadError, NotImplementedError):
    """A kernel does not support what a call needs."""


def nearest(word: object, choices: Iterable[str]) -> str:
    """The tail of an error message: the closest known word, or all of them."""
    known, word = sorted(set(choices)), str(word)[:MAX_MESSAGE_LENGTH]
    longer = [choice for choice in known if len(word) > 2 and choice.startswith(word)]
    if len(longer) == 1:  # typed as far as it is clear
        return f"did you mean {longer[0]!r}?"
    best = max(known, key=lambda choice: _similarity(word, choice), default="")
    if _similarity(word, best) > 0.5:
        return f"did you mean {best!r}?"
    return f"known: {shortened(', '.join(known), 200)}"


def _similarity(one: str, two: str) -> float:
    """0 to 1; letters count regardless of order as well, because typing errors swap them: tetha, theta."""
    one, two = one.lower(), two.lower()
    in_order = SequenceMatcher(None, one, two).ratio()
    swapped = SequenceMatcher(None, sorted(one), sorted(two)).ratio()
    return (in_order + swapped) / 2


def one_line(text: str) -> str:
    """Line breaks and control characters become spaces: a name in a file must not control the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def quoted(value: object) -> str:
    """A value out of a file, in quotes, short enough for a line."""
    if isinstance(value, int) and not -(10**60) < value < 10**60:  # Python refuses to print very long ones
        return f"a whole number of {value.bit_length()} bits"
    return _truncate(repr(value), 80)


def reason(error: BaseException) -> str:
    """The message of a library's error, without line breaks and stack frames."""
    return _truncate(" ".join(str(error).split()) or type(error).__name__, 140)


def shortened(text: str, limit: int) -> str:
    """Shorten paths first, then cut the middle: the end of a message says what to do."""
    if len(text) > limit:
        text = LONG_PATH.sub(r".../\1", text)
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 5]} ... {text[-tail:]}"


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
