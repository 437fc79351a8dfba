"""Parquet: a .parquet file in, a source out, through the pyarrow library where it is installed.

A column of one value repeated a billion times takes a few bytes in such a file. So the memory a row group can
take is computed from the file's own index before it is read, texts that repeat stay references to one
copy, and whatever the library raises, at opening or at the thousandth row, is one line about the file.
"""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import IO, Any

from ..errors import DataError
from .files import MAX_LINE_BYTES, File
from .source import MANY_ROWS, Row, Source
from .unpack import MAX_RATIO, UNCHECKED_BYTES

COUNT_SCRIPT = """
import sys
from pyarrow.parquet import ParquetFile
index = ParquetFile(sys.stdin.buffer).metadata
for group in map(index.row_group, range(index.num_row_groups)):
    print(sum(group.column(number).num_values for number in range(index.num_columns)))
"""
MAX_GROUP_BYTES = 2 * 2**30  # bytes of one row group in memory; writers make them a hundred times smaller
MAX_COLUMNS = 10_000


class ParquetSource(Source):
    """Rows of a .parquet file; row groups are read on demand."""

    def __init__(self, file: File) -> None:
        try:
            import pyarrow.compute
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise DataError(
                f"{file.name}: reading .parquet needs pyarrow: pip install 'clearhead[data]'"
            ) from None
        handle = file.handle()
        weakref.finalize(self, handle.close)
        with _parquet_errors(f"{file.name} is not a parquet file"):
            index = ParquetFile(handle).metadata
            groups = [index.row_group(number) for number in range(index.num_row_groups)]
            names = [str(name) for name in index.schema.to_arrow_schema().names]
            self._sizes = [int(group.num_rows) for group in groups]
            columns = [index.schema.column(number) for number in range(len(index.schema))]
            needed = [_memory_bound(group, columns) for group in groups]
            if any(column.max_repetition_level for column in columns):
                needed = [
                    size + 16 * values for size, values in zip(needed, _count_values(handle), strict=True)
                ]
            # References to one copy of each text, in place of as many copies as there are rows.
            texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
            self._table, declared = ParquetFile(handle, read_dictionary=texts), int(index.num_rows)
        _check_file_index(file, names, self._sizes, declared, needed)
        super().__init__(names, [file])
        self._arrow = pyarrow
        self._group = lru_cache(2)(self._read_group)

    def __len__(self) -> int:
        return sum(self._sizes)

    def __getitem__(self, number: int) -> Row:
        offset, group = self._check_index(number), 0
        while offset >= self._sizes[group]:
            offset, group = offset - self._sizes[group], group + 1
        table = self._group(group)
        with _parquet_errors(f"{self.where(number)} cannot be read"):
            cells = table.slice(offset, 1)
            _check_cell_size(cells, self.where(number))
            row: Row = cells.to_pylist()[0]
        return row

    def where(self, number: int) -> str:
        return f"{self.files[0].name} row {number + 1}"

    def _read_group(self, number: int) -> Any:
        with _parquet_errors(f"{self.files[0].name} cannot be read"):
            table = self._table.read_row_group(number)
            expanded = sum(map(self._expanded_bytes, table.columns))
        if expanded > _max_group_bytes(self.files[0]):
            raise _too_large(self.files[0], expanded)
        if table.num_rows != self._sizes[number]:
            problem = f"{table.num_rows:,} rows in a group where its index says {self._sizes[number]:,}"
            raise DataError(f"{self.files[0].name} has {problem}; download or create it again")
        return table

    def _expanded_bytes(self, column: Any) -> int:
        """The bytes of a column's texts with the dictionary expanded."""
        compute, total = self._arrow.compute, 0
        for chunk in column.chunks if self._arrow.types.is_dictionary(column.type) else []:
            lengths = compute.binary_length(chunk.dictionary)
            total += compute.sum(lengths.take(chunk.indices)).as_py() or 0
        return total


@contextmanager
def _parquet_errors(what: str) -> Iterator[None]:
    """pyarrow raises its own, Python's and system errors; each means that the file is bad."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(f"{what}: {reason}; download or create it again") from None


def _memory_bound(group: Any, columns: list[Any]) -> int:
    """An upper bound of a row group's memory: its pages unpacked, and a number or reference per cell."""
    fixed = [column.length for column in columns if column.physical_type == "FIXED_LEN_BYTE_ARRAY"]
    width = 16 * len(columns) + sum(max(length, 0) for length in fixed)
    return int(max(group.total_byte_size, 0) + max(group.num_rows, 0) * width)


def _count_values(handle: IO[bytes]) -> list[int]:
    """How many values the lists of each row group hold in all.

    Counted in a separate process: on a damaged index the library does not raise, it ends the process.
    """
    handle.seek(0)
    command = [sys.executable, "-c", COUNT_SCRIPT]
    result = subprocess.run(command, stdin=handle, capture_output=True, timeout=60)
    if result.returncode:
        raise ValueError("its index is damaged")
    return [int(word) for word in result.stdout.split()]


def _check_file_index(
    file: File, names: list[str], sizes: list[int], declared: int, needed: list[int]
) -> None:
    """Check that the index is plausible before anything is read by it."""
    if min(sizes, default=0) < 0 or sum(sizes) != declared:
        counts = f"its index declares {declared:,} rows, its row groups {sum(sizes):,}"
        raise DataError(f"{file.name} is not a parquet file: {counts}")
    if not declared:
        raise DataError(f"{file.name} has no rows; expected at least one")
    duplicate = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{file.name} has {len(names):,} columns; expected at most {MAX_COLUMNS:,}")
    if duplicate is not None:
        raise DataError(f"{file.name} has two columns called {duplicate[:80]!r}; give each a name of its own")
    if max(needed) > _max_group_bytes(file):
        raise _too_large(file, max(needed))
    if declared >= MANY_ROWS and file.size < declared / 4:
        # Repeated values take no space: one text can be fifty million rows of a small file.
        raise DataError(
            f"{file.name} has {declared:,} rows in {file.size:,} bytes: nearly all of them are the same; "
            f"remove the duplicates"
        )


def _max_group_bytes(file: File) -> int:
    """The largest row group allowed: as for compressed files, no more than text can be compressed."""
    return min(MAX_GROUP_BYTES, max(UNCHECKED_BYTES, MAX_RATIO * file.size))


def _too_large(file: File, size: int) -> DataError:
    problem = f"a row group of {size / 2**30:,.1f} GB in a file of {file.size / 2**20:,.1f} MB"
    return DataError(f"{file.name} has {problem}; write it again in smaller row groups, or as .jsonl")


def _check_cell_size(cells: Any, where: str) -> None:
    """Raise for a huge list in one row: as Python values it would take many times the memory."""
    for column in cells.columns:
        if column.type.num_fields and column.nbytes > MAX_LINE_BYTES:
            raise DataError(f"{where} is larger than {MAX_LINE_BYTES // 2**20} MB; expected text")
