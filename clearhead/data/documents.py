"""Documents: a source of plain text in, the texts that a language model reads as one piece out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from .shapes import Shape
from .source import Source


def documents(source: Source, shape: Shape, by: Literal["row", "paragraph", "file"] = "row") -> Iterator[str]:
    """By `row` each row is a text; by `paragraph` rows up to a blank one are joined; by `file` all of a file."""
    column, lines, place = shape.columns["text"], [], ""
    for number, row in enumerate(source):
        value = row.get(column)
        text = "\n".join(map(str, value)) if isinstance(value, list) else str(value or "")
        file = source.where(number).rpartition(" line ")[0] or place
        over = by == "row" or (by == "paragraph" and not text.strip()) or (by == "file" and file != place)
        if over and any(line.strip() for line in lines):
            yield "\n".join(lines)
        lines = [*([] if over else lines), text] if by != "paragraph" or text.strip() else []
        place = file
    if any(line.strip() for line in lines):
        yield "\n".join(lines)
