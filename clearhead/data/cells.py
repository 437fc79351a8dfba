"""Cells: a row and the column of a role in; its value as text, as a number, or as it is, out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import DataError
from .source import Row

Columns = Mapping[str, str]  # role -> column


class BlankError(DataError):
    """A row without content: it is skipped. Any other fault must be fixed by the user."""


def cell_value(row: Row, column: str, role: str) -> Any:
    if column in row:
        return row[column]
    outer, _, inner = column.partition(".")  # {"translation": {"en": ..., "zh": ...}}
    if isinstance(row.get(outer), dict) and inner in row[outer]:
        return row[outer][inner]
    raise DataError(
        f"there is no {column} in it" if column == role else f"there is no {column} ({role}) in it"
    )


def optional_cell(row: Row, columns: Columns, role: str) -> Any:
    """The value of a role that a kind of rows may have, or this row may lack; None if there is none."""
    if role not in columns:
        return None
    try:
        return cell_value(row, columns[role], role)
    except DataError:
        return None


def cell_text(row: Row, columns: Columns, role: str) -> str:
    """The value of a role as text; numbers are formatted, a list of lines is joined."""
    return as_text(cell_value(row, columns[role], role), role)


def as_text(value: Any, role: str) -> str:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        if len(value) > 1 and role in ("tgt", "completion"):
            raise DataError(f"{role} holds {len(value)} texts; expected one")
        value = ("\n" if role == "text" else " ").join(value)  # lines of a poem, sentences of an article
    if value is None:
        value = ""
    is_nan = isinstance(value, float) and not math.isfinite(value)  # JSON's NaN is an empty cell, not a word
    if is_nan or isinstance(value, bool | list | dict) or not isinstance(value, str | int | float):
        raise DataError(f"{role} holds a {type(value).__name__}; expected text")
    text = str(value)
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise DataError(f"{role} holds half a character (a lone surrogate); it was decoded wrongly")
    return text


def texts_reader(*roles: str) -> Callable[[Row, Columns], Row]:
    """A reader of rows that have a text in each of these roles."""

    def read(row: Row, columns: Columns) -> Row:
        texts = {role: cell_text(row, columns, role) for role in roles}
        for role, text in texts.items():
            if not text.strip():
                raise BlankError(f"{role} is empty")
        return texts

    return read


def as_number(value: Any) -> float | None:
    """A finite number, or a text that is one."""
    try:
        number = (
            float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        )
    except (ValueError, OverflowError):
        return None
    return number if number is not None and math.isfinite(number) else None
