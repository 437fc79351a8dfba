"""Checking data before anything runs: a source in, a report out of what a model would learn from it."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..errors import DataError, InputError
from ..text import Tokenizer
from .kinds import BlankError
from .preview import Stretch, preview, texts
from .shapes import Shape, detect
from .source import Row, Source

Rows = list[int]  # row numbers as people count, from 1
CHUNK = 1000


@dataclass(frozen=True)
class Lengths:
    """How long the texts of one role are, and how many rows fall into eight equal steps from min to max."""

    min: int
    median: int
    p95: int
    max: int
    histogram: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """`wrong` must be mended; empty rows are left out, over-long ones cut, duplicates kept."""

    files: dict[str, str]  # name -> sha256
    rows: int
    encoding: str
    note: str
    columns: tuple[str, ...]
    shape: Shape
    others: tuple[Shape, ...]
    unit: str  # tokens or characters
    lengths: dict[str, Lengths]
    limit: int | None
    empty: dict[str, Rows]  # what is empty -> which rows
    wrong: dict[str, Rows]  # what is wrong -> which rows
    over_long: Rows
    duplicates: Rows
    labels: dict[str, int]
    first: list[Stretch]
    usable: int  # rows
    why: str  # the data cannot be used; empty if it can

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        for name in ("shape", "others"):
            del plain[name]
        shapes = [
            {"kind": s.kind, "columns": dict(s.columns), "reason": s.reason}
            for s in (self.shape, *self.others)
        ]
        return plain | {"shape": shapes[0], "others": shapes[1:]}


def check(
    source: Source,
    *,
    mapping: Mapping[str, str] | None = None,
    tokenizer: Tokenizer | None = None,
    length: int | None = None,
) -> Report:
    """Reads every row once. `length` is what the model takes: tokens, or characters without a tokenizer."""
    if length is not None and length < 1:
        raise InputError(f"length is {length}; expected at least 1")
    shape, *others = detect(source, mapping)
    limit = length or (tokenizer.model_max_length if tokenizer else None)
    tally = _Tally(shape, tokenizer, limit)
    tally.count(source)
    return Report(
        files=source.hashes(),
        rows=len(source),
        encoding=source.encoding,
        note=source.note,
        columns=source.columns,
        shape=shape,
        others=tuple(others),
        unit="tokens" if tokenizer else "characters",
        lengths={role: _summary(np.array(values)) for role, values in tally.lengths.items()},
        limit=limit,
        empty=tally.empty,
        wrong=tally.wrong,
        over_long=tally.over_long,
        duplicates=tally.duplicates,
        labels=dict(sorted(tally.labels.items(), key=lambda item: (-item[1], item[0]))),
        first=tally.first,
        usable=tally.usable,
        why=_why(source, tally),
    )


def numbered(rows: Sequence[int], most: int = 5) -> str:
    """Row numbers for a line: the first few, and how many more."""
    more = f" and {len(rows) - most:,} more" if len(rows) > most else ""
    return ("row " if len(rows) == 1 else "rows ") + ", ".join(map(str, rows[:most])) + more


class _Tally:
    """What is counted while the rows go by; the rows themselves are not kept."""

    def __init__(self, shape: Shape, tokenizer: Tokenizer | None, limit: int | None) -> None:
        self.shape, self.tokenizer, self.limit = shape, tokenizer, limit
        self.empty: dict[str, Rows] = {}
        self.wrong: dict[str, Rows] = {}
        self.lengths: dict[str, array[int]] = {}
        self.over_long: Rows = []
        self.duplicates: Rows = []
        self.labels: Counter[str] = Counter()
        self.first: list[Stretch] = []
        self.usable = 0
        self._seen: set[bytes] = set()

    def count(self, source: Source) -> None:
        good = self._good(source)
        while chunk := list(islice(good, CHUNK)):
            if not self.usable:
                self.first = preview(self.shape.form, chunk[0][1], self.tokenizer)
            self.usable += len(chunk)
            self._measure(chunk)
            for number, row in chunk:
                self._look(number, row)

    def _good(self, source: Source) -> Iterator[tuple[int, Row]]:
        for number, row in enumerate(source, 1):
            try:
                yield number, self.shape.read(row)
            except BlankError as fault:
                self.empty.setdefault(str(fault), []).append(number)
            except DataError as fault:
                self.wrong.setdefault(str(fault), []).append(number)

    def _measure(self, chunk: list[tuple[int, Row]]) -> None:
        """A pair is two inputs, each with the whole length to itself; elsewhere all texts stand in one row."""
        form, parts = self.shape.form, [texts(self.shape.form, row) for _, row in chunk]
        sides = []
        for role in parts[0]:
            column = [part[role] for part in parts]
            encoded = self.tokenizer.encode_batch(column, specials=False) if self.tokenizer else column
            sides.append([len(each) for each in encoded])
            self.lengths.setdefault(role, array("Q")).extend(sides[-1])
        for (number, _), lengths in zip(chunk, zip(*sides, strict=True), strict=True):
            if self.limit is not None and (max(lengths) if form == "pair" else sum(lengths)) > self.limit:
                self.over_long.append(number)

    def _look(self, number: int, row: Row) -> None:
        digest = hashlib.blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=12).digest()
        if digest in self._seen:
            self.duplicates.append(number)
        self._seen.add(digest)
        if self.shape.form == "label":
            self.labels[row["label"]] += 1
        elif self.shape.form == "tags":
            self.labels.update(row["tags"])


def _why(source: Source, tally: _Tally) -> str:
    if tally.wrong:
        what, rows = max(tally.wrong.items(), key=lambda item: len(item[1]))
        others = sum(map(len, tally.wrong.values())) - len(rows)
        more = f"; {others:,} more rows have other faults" if others else ""
        return f"{source.where(rows[0] - 1)}: {what} ({numbered(rows)}){more}; mend or remove them"
    if not tally.usable:
        what, rows = next(iter(tally.empty.items()))
        return f"there is nothing to train on: {what} ({numbered(rows)})"
    return ""


def _summary(values: np.ndarray[Any, Any]) -> Lengths:
    counts, _ = np.histogram(values, bins=8)
    middle, high = (int(np.percentile(values, share, method="lower")) for share in (50, 95))
    return Lengths(int(values.min()), middle, high, int(values.max()), tuple(counts.tolist()))
