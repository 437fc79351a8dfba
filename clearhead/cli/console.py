"""The terminal: results to stdout, everything else to stderr; colours only where somebody looks."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

OUT = Console(highlight=False, soft_wrap=True)
ERR = Console(stderr=True, highlight=False)


def print_json(data: Any, indent: int | None = 2) -> None:
    """For machines: one JSON document on stdout; without an indent on one line, where more will follow."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=indent, default=str) + "\n")


def table(*columns: str, right: tuple[int, ...] = (), whole: tuple[int, ...] = ()) -> Table:
    """A plain table; `right` numbers the columns of figures, `whole` those that are never wrapped."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i in right else "left", no_wrap=i in whole)
    return made


def amount(number: float) -> str:
    """1234567 as 1.23 M."""
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:g}"
