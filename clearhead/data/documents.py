"""Documents: a source of plain text in, the texts that a language model reads as one piece out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from .shapes import Shape
from .source import Source


def documents(source: Source, shape: Shape, by: Literal["row", "paragraph", "file"] = "row") -> Iterator[str]:
    """By `row` each row is a text; by `paragraph` up to a blank row; by `file` all of a file."""
    lines: list[str] = []
    place = ""
    for number, row in enumerate(source):
        value = row.get(shape.columns["text"])
        text = "\n".join(map(str, value)) if isinstance(value, list) else str("" if value is None else value)
        before, place = place, source.where(number).rsplit(" ", 2)[0]
        blank = not text.strip()
        if by == "row" or (by == "paragraph" and blank) or before != place:
            if any(line.strip() for line in lines):
                yield "\n".join(lines)
            lines = []
        if by == "file" or not blank:
            lines.append(text)
    if any(line.strip() for line in lines):
        yield "\n".join(lines)
