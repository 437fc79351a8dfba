"""Tables: a .csv or .tsv file in, a source with named columns out. Ragged rows are an error."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from itertools import islice

from ..errors import DataError
from .files import File
from .schema import KNOWN_COLUMNS, normalised_name
from .source import FileSource, Row, Source

Cells = list[str]
MAX_CELL = 16 * 2**20  # characters of one cell; the csv library takes four bytes for each
MAX_TABLE_COLUMNS = 10_000
MAX_SEPARATORS = 1_000_000  # in one line: 64 MB of English have no more commas
NUMERIC_CELL = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?", re.IGNORECASE)


def read_tsv(file: File, note: str = "") -> Source:
    """Tabs separate cells and there is no quoting: a quotation mark is text, as in most corpora."""
    lines = enumerate(file.lines(), 1)
    rows = ((start, number, _split_cells(file, number, text)) for number, (start, text) in lines if text)
    return _table(file, rows, lambda text: text.split("\t"), note, assume_header=False)


def read_csv(file: File) -> Source:
    csv.field_size_limit(MAX_CELL)  # the library's own limit is 128 kB
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


def _split_cells(file: File, line: int, text: str) -> Cells:
    _check_separators(file, line, text.count("\t"), MAX_TABLE_COLUMNS)
    return text.split("\t")


def _check_separators(file: File, line: int, separators: int, limit: int) -> None:
    if separators > limit:
        raise DataError(
            f"{file.name} line {line} has {separators:,} separators, expected up to {limit:,}; is it a table?"
        )


def _csv_rows(file: File, separator: str) -> Iterator[tuple[int, int, Cells]]:
    """The offset, line and cells of each row; a quoted cell may span several lines."""
    row_start: int | None = None

    def lines() -> Iterator[str]:
        nonlocal row_start
        for number, (start, text) in enumerate(file.lines(), 1):
            row_start = start if row_start is None else row_start
            _check_separators(file, number, text.count(separator), MAX_SEPARATORS)
            yield text + "\n"

    reader, line = csv.reader(lines(), delimiter=separator, strict=True), 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"{file.name} line {line} is not a CSV row: {error}; is a quotation mark left open?"
            ) from None
        if cells is None:
            return
        if cells and row_start is not None:  # a blank line has no cells
            yield row_start, line, cells
        row_start = None
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
    _check_separators(file, head[0][1], len(first) - 1, MAX_TABLE_COLUMNS)
    columns = [name.strip() if header and name.strip() else f"column{i}" for i, name in enumerate(first, 1)]
    if header and len(head) == 1:
        raise DataError(f"{file.name} has a header and no rows; expected at least one")

    def row_starts() -> Iterator[tuple[int, int]]:
        for start, line, cells in (*head[header:], *rows):
            _check_cells(file, line, cells, columns)
            yield start, line

    def read(text: str, line: int) -> Row:
        return dict(zip(columns, parse(text), strict=True))

    notes = [note, "" if header else "no header"]
    return FileSource(file, columns, row_starts(), read, ", ".join(filter(None, notes)))


def _check_cells(file: File, line: int, cells: Cells, columns: Cells) -> None:
    if len(cells) != len(columns):
        raise DataError(
            f"{file.name} line {line} has {len(cells)} cells, expected {len(columns)} "
            f"({', '.join(columns)[:80]}); quote a cell that holds the separator, or fix the row"
        )


def _has_header(rows: list[Cells], *, assume: bool) -> bool:
    """Whether the first row is a header: known names say yes; numbers or values of later rows say no."""
    first, others = rows[0], rows[1:]
    filled = [cell for cell in first if cell.strip()]
    if len(set(first)) < len(first) or not filled or max(map(len, first)) > 60:
        return False
    if any(normalised_name(cell) in KNOWN_COLUMNS for cell in first):
        return True
    if any(NUMERIC_CELL.fullmatch(cell.strip()) for cell in filled):
        return False
    columns = list(zip(*(cells for cells in others if len(cells) == len(first)), strict=True))
    for name, values in zip(first, columns, strict=False):
        if len(values) > 1 and all(NUMERIC_CELL.fullmatch(value.strip()) for value in values):
            return True
        if name in values:
            return False
    return assume
