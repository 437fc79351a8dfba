"""Rows as documents, and which of them are held out: a source of text in, texts and splits out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from .detect import Schema
from .source import Row, Source


def documents(
    source: Source, schema: Schema, by: Literal["row", "paragraph", "file"] = "row"
) -> Iterator[str]:
    """The texts of a source: each row (`row`), paragraphs (`paragraph`), or whole files (`file`)."""
    lines: list[str] = []
    place = ""
    for number, row in enumerate(source):
        value = row.get(schema.columns["text"])
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


def is_held_out(text: str, *, one_in: int) -> bool:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little") % one_in == 0


def split_by_hash(rows: Iterable[Mapping[str, Any]], column: str, *, one_in: int) -> dict[str, list[Row]]:
    """Split rows by a hash of one column; later rows with the same text are dropped."""
    splits: dict[str, dict[str, Row]] = {"train": {}, "valid": {}}
    for row in rows:
        split = "valid" if is_held_out(row[column], one_in=one_in) else "train"
        splits[split].setdefault(row[column], dict(row))
    return {name: list(kept.values()) for name, kept in splits.items()}
