"""Rows as documents, and which of them are held out: a source of text in, texts and splits out."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from .detect import Schema
from .source import Row, Source

MIN_PROSE_LINES = 20
SAMPLED_LINES = 2000
PROSE_BLANK_SHARE = 0.02  # of the lines; lists of texts have fewer blank ones


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


def is_prose(source: Source) -> bool:
    """Whether the lines of text files are parts of longer texts: blank lines separate paragraphs."""
    if source.columns != ("text",) or not all(".txt" in Path(file.name).suffixes for file in source.files):
        return False
    if not source.files or len(source) < MIN_PROSE_LINES:
        return False
    count = min(len(source), SAMPLED_LINES)
    sample = [str(source[i * len(source) // count]["text"]) for i in range(count)]
    return any(sample) and sum(not line.strip() for line in sample) >= PROSE_BLANK_SHARE * count


class Paragraphs(Source):
    """The paragraphs of prose as rows: lines between blank ones. Only where they begin is in memory."""

    def __init__(self, lines: Source) -> None:
        super().__init__(lines.columns, lines.files, f"{len(lines):,} lines")
        self._lines, self._starts, self._ends = lines, array("Q"), array("Q")
        inside = False
        for number, row in enumerate(lines):
            blank = not str(row["text"]).strip()
            if not blank and not inside:
                self._starts.append(number)
            if blank and inside:
                self._ends.append(number)
            inside = not blank
        if inside:
            self._ends.append(len(lines))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> Row:
        at = range(self._starts[self._check_index(number)], self._ends[number])
        return {"text": "\n".join(str(self._lines[i]["text"]) for i in at)}

    def where(self, number: int) -> str:
        return self._lines.where(self._starts[number])


def is_held_out(text: str, *, one_in: int) -> bool:
    return text_hash(text) % one_in == 0


def text_hash(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little")


def split_by_hash(rows: Iterable[Mapping[str, Any]], column: str, *, one_in: int) -> dict[str, list[Row]]:
    """Split rows by a hash of one column; later rows with the same text are dropped."""
    splits: dict[str, dict[str, Row]] = {"train": {}, "valid": {}}
    for row in rows:
        split = "valid" if is_held_out(row[column], one_in=one_in) else "train"
        splits[split].setdefault(row[column], dict(row))
    return {name: list(kept.values()) for name, kept in splits.items()}
