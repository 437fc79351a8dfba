"""Parquet: a .parquet file in, a source out, through the pyarrow library where it is installed."""

from __future__ import annotations

import weakref
from functools import lru_cache

from ..errors import DataError
from .files import File
from .source import Row, Source


class Parquet(Source):
    """Rows of a .parquet file; a row group is read when one of its rows is asked for."""

    def __init__(self, file: File) -> None:
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise DataError(
                f"{file.name}: reading .parquet needs pyarrow: pip install 'clearhead[data]'"
            ) from None
        handle = file.handle()
        weakref.finalize(self, handle.close)
        try:
            table = ParquetFile(handle)
        except (ArrowException, OSError) as error:
            raise DataError(f"{file.name} is no parquet file: {' '.join(str(error).split())[:120]}") from None
        super().__init__(table.schema_arrow.names, [file])
        groups = range(table.metadata.num_row_groups)
        self._sizes = [table.metadata.row_group(group).num_rows for group in groups]
        self._group = lru_cache(4)(table.read_row_group)
        self._count: int = table.metadata.num_rows
        if not self._count:
            raise DataError(f"{file.name} has no rows; expected at least one")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Row:
        inside, group = self._checked(number), 0
        while inside >= self._sizes[group]:
            inside, group = inside - self._sizes[group], group + 1
        row: Row = self._group(group).slice(inside, 1).to_pylist()[0]
        return row

    def where(self, number: int) -> str:
        return f"{self.files[0].name} row {number + 1}"
