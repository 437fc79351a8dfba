"""Tables: a .csv or .tsv file in, a source with named columns out. Ragged rows are refused by line."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from itertools import islice

from ..errors import DataError
from .files import LONGEST, File
from .names import KNOWN, plain
from .source import Records, Row, Source

Cells = list[str]
NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?", re.IGNORECASE)


def read_tsv(file: File, note: str = "") -> Source:
    """Tabs separate, nothing quotes: a lone quotation mark is text, as in most corpora."""
    rows = ((start, number, text.split("\t")) for number, (start, text) in enumerate(file.lines(), 1) if text)
    return _table(file, rows, lambda text: text.split("\t"), note, assume_header=False)


def read_csv(file: File) -> Source:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))  # the library's own limit is 128 kB a cell
    first = next(text for _, text in file.lines())
    separator = max(",;\t", key=first.count)  # ; is what spreadsheets write where , is a decimal point

    def parse(text: str) -> Cells:
        lines = [line + "\n" for line in text.split("\n")]
        return next(csv.reader(lines, delimiter=separator, strict=True), [])

    note = "" if separator == "," else f"separated by {'tabs' if separator == chr(9) else separator}"
    return _table(file, _csv_rows(file, separator), parse, note, assume_header=True)


def looks_tabular(file: File) -> bool:
    """Whether a .txt is a table: the same number of tabs, at least one, in each of its first lines."""
    tabs = {text.count("\t") for _, text in islice(file.lines(), 200) if text}
    return len(tabs) == 1 and tabs != {0}


def _csv_rows(file: File, separator: str) -> Iterator[tuple[int, int, Cells]]:
    """Byte and line where each row begins, and its cells; a quoted cell may run over several lines."""
    starts: list[int] = []

    def feed() -> Iterator[str]:
        for start, text in file.lines():
            starts.append(start)
            yield text + "\n"

    reader, line = csv.reader(feed(), delimiter=separator, strict=True), 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"{file.name} line {line} is no CSV row: {error}; is a quotation mark left open?"
            ) from None
        if cells is None:
            return
        if cells:  # a blank line has none
            yield starts[0], line, cells
        starts.clear()
        line = reader.line_num + 1


def _table(
    file: File,
    rows: Iterator[tuple[int, int, Cells]],
    parse: Callable[[str], Cells],
    note: str,
    *,
    assume_header: bool,
) -> Source:
    head = list(islice(rows, 200))
    if not head:
        raise DataError(f"{file.name} has no rows; expected at least one")
    header = _has_header([cells for *_, cells in head], assume=assume_header)
    first = head[0][2]
    columns = [name.strip() if header and name.strip() else f"column{i}" for i, name in enumerate(first, 1)]
    if header and len(head) == 1:
        raise DataError(f"{file.name} has a header and no rows; expected at least one")

    def begins() -> Iterator[tuple[int, int]]:
        for start, line, cells in (*head[header:], *rows):
            _check(file, line, cells, columns)
            yield start, line

    def read(text: str, line: int) -> Row:
        return dict(zip(columns, parse(text), strict=True))

    notes = [note, "" if header else "no header"]
    return Records(file, columns, begins(), read, ", ".join(filter(None, notes)))


def _check(file: File, line: int, cells: Cells, columns: Cells) -> None:
    if len(cells) != len(columns):
        raise DataError(
            f"{file.name} line {line} has {len(cells)} cells, expected {len(columns)} "
            f"({', '.join(columns)[:80]}); quote a cell that holds the separator, or mend the row"
        )


def _has_header(rows: list[Cells], *, assume: bool) -> bool:
    """Names on the first row? Known words say yes; a number, a repetition or a value of below say no."""
    first, below = rows[0], rows[1:]
    filled = [cell for cell in first if cell.strip()]
    if len(set(first)) < len(first) or not filled or max(map(len, first)) > 60:
        return False
    if any(plain(cell) in KNOWN for cell in first):
        return True
    if any(NUMBER.fullmatch(cell.strip()) for cell in filled):
        return False
    columns = list(zip(*(cells for cells in below if len(cells) == len(first)), strict=True))
    for name, values in zip(first, columns, strict=False):
        if len(values) > 1 and all(NUMBER.fullmatch(value.strip()) for value in values):
            return True
        if name in values:
            return False
    return assume
