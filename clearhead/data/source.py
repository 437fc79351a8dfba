"""A source: rows by number, each a dict of columns; whatever file, files or list they come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ..errors import DataError
from .files import File

Row = dict[str, Any]
Parse = Callable[[str, int], Row]  # the text of a row and the number of its first line
MANY_ROWS, SHORT_ROW_BYTES = (
    2**20,
    4,
)  # text has no million rows of less than four bytes


class Source(ABC):
    """Rows are counted from 0 here and from 1 wherever a person reads them."""

    def __init__(self, columns: Sequence[str], files: Sequence[File], note: str = "") -> None:
        self.columns = tuple(columns)
        self.files = tuple(files)
        self.note = note  # how the file was interpreted, such as "no header"

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, number: int) -> Row: ...

    @abstractmethod
    def where(self, number: int) -> str:
        """The place of a row as an editor shows it: file and line."""

    def __iter__(self) -> Iterator[Row]:
        return (self[number] for number in range(len(self)))

    @property
    def encoding(self) -> str:
        return ", ".join(sorted({file.encoding for file in self.files}))

    def hashes(self) -> dict[str, str]:
        """The sha256 of every file, for the record of a run."""
        return {file.name: file.sha256 for file in self.files}

    def _check_index(self, number: int) -> int:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return number


class FileSource(Source):
    """Rows of one file, read on demand: only their offsets are in memory, 16 bytes per row."""

    def __init__(
        self,
        file: File,
        columns: Sequence[str],
        row_starts: Iterable[tuple[int, int]],  # byte and line where each row begins, in order
        parse: Parse,
        note: str = "",
        unit: str = "line",  # what the numbers in `row_starts` count
    ) -> None:
        super().__init__(columns, [file], note)
        self._starts, self._lines, self._parse, self._unit = array("Q"), array("Q"), parse, unit
        for start, line in row_starts:
            self._starts.append(start)
            self._lines.append(line)
            if len(self._lines) % MANY_ROWS == 0 and start < SHORT_ROW_BYTES * len(self._lines):
                # Where each row begins would take many times the memory that the file has.
                raise DataError(
                    f"{file.name} has {start / len(self._lines):.1f} bytes per row in its first "
                    f"{len(self._lines):,} rows; expected text: remove the empty rows"
                )
        if not self._starts:
            raise DataError(f"{file.name} has no rows; expected at least one")
        self._starts.append(file.size)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: int) -> Row:
        line = self._lines[self._check_index(number)]
        file = self.files[0]
        raw = file.read(self._starts[number], self._starts[number + 1])
        return self._parse(file.text(raw, line), line)

    def where(self, number: int) -> str:
        return f"{self.files[0].name} {self._unit} {self._lines[number]}"


class InMemorySource(Source):
    """Rows in memory: of a JSON file, or generated."""

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], files: Sequence[File] = (), *, name: str = "", note: str = ""
    ) -> None:
        columns = dict.fromkeys(column for row in rows[:100] for column in row)
        super().__init__(tuple(columns), files, note)
        self._rows, self._name = rows, files[0].name if files else name

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Row:
        return dict(self._rows[self._check_index(number)])

    def where(self, number: int) -> str:
        return f"{self._name} row {number + 1}"


class ConcatenatedSource(Source):
    """Several sources one after another, with the columns they have in common."""

    def __init__(self, parts: Sequence[Source]) -> None:
        shared = [c for c in parts[0].columns if all(c in part.columns for part in parts)]
        if not shared:
            one, two = parts[0], next(p for p in parts if not set(p.columns) & set(parts[0].columns))
            raise DataError(
                f"{one.where(0)} has the columns {', '.join(one.columns)} and {two.where(0)} "
                f"{', '.join(two.columns)}; files that are read together need columns in common"
            )
        notes = dict.fromkeys(part.note for part in parts if part.note)
        super().__init__(shared, [file for part in parts for file in part.files], ", ".join(notes))
        self._parts, self._ends = parts, list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, number: int) -> Row:
        part, offset = self._locate(self._check_index(number))
        return part[offset]

    def where(self, number: int) -> str:
        part, offset = self._locate(number)
        return part.where(offset)

    def _locate(self, number: int) -> tuple[Source, int]:
        i = bisect_right(self._ends, number)
        return self._parts[i], number - (self._ends[i - 1] if i else 0)


class ParallelSource(Source):
    """Files whose lines belong together: line 7 of `train.en` is line 7 of `train.zh`."""

    def __init__(self, sides: Mapping[str, Source]) -> None:
        counts = {name: len(side) for name, side in sides.items()}
        if len(set(counts.values())) > 1:
            lines = ", ".join(f"{side.files[0].name} has {len(side):,} lines" for side in sides.values())
            raise DataError(f"{lines}; parallel files need as many lines each")
        super().__init__(tuple(sides), [f for side in sides.values() for f in side.files], "parallel files")
        self._sides = sides

    def __len__(self) -> int:
        return len(next(iter(self._sides.values())))

    def __getitem__(self, number: int) -> Row:
        return {name: side[number]["text"] for name, side in self._sides.items()}

    def where(self, number: int) -> str:
        return next(iter(self._sides.values())).where(number)
