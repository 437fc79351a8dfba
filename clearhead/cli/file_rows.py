"""Rows of a file for prediction and embedding: a file and the names of columns in; texts out, blank ones too.

A table (.tsv .csv .json .jsonl .parquet) has columns, which are found by their names and contents if none is
named, and a note says which. Any other file is one text per line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, nearest
from .options import lines_of

if TYPE_CHECKING:
    from ..data import Row, Schema, Source

TABLES = (".tsv", ".csv", ".json", ".jsonl", ".parquet", ".conll")
# Roles that can be read, and the one that stands beside each.
BESIDE = {"text": "second", "question": "context", "tokens": "", "src": "", "prompt": "", "anchor": ""}


@dataclass(frozen=True)
class FileRows:
    texts: Sequence[str]
    contexts: Sequence[str] | None = None
    choices: Sequence[Sequence[str]] | None = None
    note: str = ""  # which columns were taken, if nobody named them


def is_table(file: str) -> bool:
    name = Path(file).name.lower().removesuffix(".gz").removesuffix(".xz")
    return Path(name).suffix in TABLES


def read_file_rows(
    file: str, column: str | None, context: str | None = None, *, choices: bool = False
) -> FileRows:
    """`context` is the column of the second text; `choices` finds those of multiple choice as well."""
    if column is None and context is not None:
        raise InputError("--context-column needs --column; name both")
    if column is None and not is_table(file):
        return FileRows(lines_of(file))
    from ..data import read_rows

    source = read_rows(file)
    if column is not None:
        texts = _column(source, file, column)
        return FileRows(texts, None if context is None else _column(source, file, context))
    schema, role = _readable(source, file)
    roles = [each for each in (role, BESIDE[role]) if each in schema.columns]
    note = f"{file}: reading {', '.join(f'{r}={schema.columns[r]}' for r in roles)}; --column names another"
    texts = _column(source, file, schema.columns[role])
    beside = schema.columns.get(BESIDE[role])
    contexts = None if beside is None else _column(source, file, beside)
    lists = [schema.read(row)["choices"] for row in source] if choices and schema.form == "choice" else None
    return FileRows(texts, contexts, lists, note)


def _readable(source: Source, file: str) -> tuple[Schema, str]:
    """The most likely schema with a text in it, and the role of that text."""
    from ..data import detect_schemas

    try:
        schemas = detect_schemas(source)
    except InputError:
        schemas = ()
    for schema in schemas:
        for role in BESIDE:
            if role in schema.columns:
                return schema, role
    names = ", ".join(source.columns)[:120]
    raise InputError(f"{file} has the columns {names}; name the one to read: --column {source.columns[0]}")


def _column(source: Source, file: str, name: str) -> list[str]:
    if name not in source.columns:
        raise InputError(f"{file} has no column {name!r}; {nearest(name, source.columns)}")
    return [_as_text(row, name, source.where(number)) for number, row in enumerate(source)]


def _as_text(row: Row, name: str, where: str) -> str:
    value: Any = row.get(name)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        raise InputError(f"{where}: {name} holds a {type(value).__name__}; expected text")
    return str(value)
