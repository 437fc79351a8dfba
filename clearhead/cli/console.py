"""The terminal: results to stdout, everything else to stderr; colours only on a terminal.

Texts come from untrusted files. A character that would control the terminal (an escape), or show
others in another order (a bidirectional override), is printed as its code.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Joiners hold emoji and Persian words together, tags make the flags of regions.
HARMLESS_CHARACTERS = frozenset("\n\t\u200c\u200d") | frozenset(map(chr, range(0xE0020, 0xE0080)))
# Unicode categories: controls, formats, surrogates, line and paragraph separators.
CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str) -> str:
    """The text with every character that would control a terminal written out: \\x1b for an escape."""
    if text.isprintable():  # nearly always, and quick
        return text
    return "".join(
        letter.encode("unicode_escape").decode("ascii") if _is_control(letter) else letter for letter in text
    )


class SafeConsole(Console):
    """A console that escapes control characters in lines and table cells."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


OUT = SafeConsole(highlight=False, soft_wrap=True)
ERR = SafeConsole(stderr=True, highlight=False)
READABLE_WIDTH = 100  # columns; longer lines of prose are hard to read


def print_json(data: Any, indent: int | None = 2) -> None:
    """Print one JSON document to stdout; without an indent it is one line, for streams of documents."""
    text = json.dumps(data, ensure_ascii=False, indent=indent, default=str)
    if not text.isprintable():
        # They can occur in strings only, where \\u001b means the same.
        text = "".join(json.dumps(letter)[1:-1] if _is_control(letter) else letter for letter in text)
    sys.stdout.write(text + "\n")


def write(text: str) -> None:
    """Write generated text to stdout and flush: unchanged into a file, escaped on a terminal."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def _is_control(letter: str) -> bool:
    return letter not in HARMLESS_CHARACTERS and unicodedata.category(letter) in CONTROL_CATEGORIES


def table(*columns: str, right: tuple[int, ...] = (), no_wrap: tuple[int, ...] = ()) -> Table:
    """A plain table; `right` numbers the right-aligned columns, `no_wrap` those that are never wrapped."""
    result = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        result.add_column(column, justify="right" if i in right else "left", no_wrap=i in no_wrap)
    return result


def amount(number: float) -> str:
    """1234567 as 1.23 M."""
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:g}"


def program() -> str:
    """How to call this program again: by its name if the shell finds it there, else by its path."""
    script = Path(sys.argv[0])
    found = shutil.which("clearhead")
    if found is not None and Path(found).resolve() == script.resolve():
        return "clearhead"
    if script.name.startswith("clearhead") and script.is_file():
        return os.path.relpath(script)
    return "clearhead" if found is not None else "python -m clearhead"
