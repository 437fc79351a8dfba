"""One line of an error: names and reasons from files we did not write in, printable text out."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Breaks and control characters become spaces: a file name must not paint on somebody's terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def quoted(name: object) -> str:
    """A value out of a file, in quotes, short enough for a line."""
    return _cut(repr(name), 80)


def reason(error: BaseException) -> str:
    """What a library said, without its line breaks and stack frames."""
    return _cut(" ".join(str(error).split()) or type(error).__name__, 240)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
