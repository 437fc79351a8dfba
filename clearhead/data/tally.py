"""Statistics of a data source, collected in one pass over its rows."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from ..errors import DataError
from ..text import Tokenizer
from .cells import BlankError
from .detect import Schema
from .preview import Segment, preview, row_texts
from .source import Row, Source

RowNumbers = list[int]  # row numbers as people count, from 1
CHUNK_ROWS = 1000


class Tally:
    """Statistics of rows; the rows themselves are not kept."""

    def __init__(self, schema: Schema, tokenizer: Tokenizer | None, limit: int | None) -> None:
        self.schema, self.tokenizer, self.limit = schema, tokenizer, limit
        self.empty: dict[str, RowNumbers] = {}
        self.wrong: dict[str, RowNumbers] = {}
        self.lengths: dict[str, array[int]] = {}
        self.over_long: RowNumbers = []
        self.duplicates: RowNumbers = []
        self.labels: Counter[str] = Counter()
        self.first: list[Segment] = []
        self.first_row: Row | None = None
        self.usable = 0
        self._seen: set[bytes] = set()

    def count(self, source: Source) -> None:
        rows = self._valid_rows(source)
        while chunk := list(islice(rows, CHUNK_ROWS)):
            if not self.usable:
                self.first_row = chunk[0][1]
                self.first = preview(self.schema.form, self.first_row)
            self.usable += len(chunk)
            self._measure(chunk)
            for number, row in chunk:
                self._count_row(number, row)

    def _valid_rows(self, source: Source) -> Iterator[tuple[int, Row]]:
        for number, row in enumerate(source, 1):
            try:
                yield number, self.schema.read(row)
            except BlankError as error:
                self.empty.setdefault(str(error), []).append(number)
            except DataError as error:
                self.wrong.setdefault(str(error), []).append(number)

    def _measure(self, chunk: list[tuple[int, Row]]) -> None:
        """The two texts of a pair are separate inputs; elsewhere all texts of a row share one input."""
        form, parts = self.schema.form, [row_texts(self.schema.form, row) for _, row in chunk]
        sides = []
        for role in parts[0]:
            column = [part[role] for part in parts]
            encoded = self.tokenizer.encode_batch(column, specials=False) if self.tokenizer else column
            sides.append([len(text) for text in encoded])
            self.lengths.setdefault(role, array("Q")).extend(sides[-1])
        for (number, _), lengths in zip(chunk, zip(*sides, strict=True), strict=True):
            if self.limit is not None and (max(lengths) if form == "pair" else sum(lengths)) > self.limit:
                self.over_long.append(number)

    def _count_row(self, number: int, row: Row) -> None:
        digest = hashlib.blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=12).digest()
        if digest in self._seen:
            self.duplicates.append(number)
        self._seen.add(digest)
        if self.schema.form == "label":
            self.labels[row["label"]] += 1
        elif self.schema.form == "labels":
            self.labels.update(row["labels"])
        elif self.schema.form == "tags":
            self.labels.update(row["tags"])


def format_row_numbers(rows: Sequence[int], most: int = 5) -> str:
    """Row numbers for a line: the first few, and how many more."""
    more = f" and {len(rows) - most:,} more" if len(rows) > most else ""
    return ("row " if len(rows) == 1 else "rows ") + ", ".join(map(str, rows[:most])) + more
