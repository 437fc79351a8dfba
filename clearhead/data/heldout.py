"""Held out or not: a text in, the same answer for ever out. Equal texts can never be on both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

Row = dict[str, Any]


def is_held_out(text: str, *, one_in: int) -> bool:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little") % one_in == 0


def divide(rows: Iterable[Mapping[str, Any]], column: str, *, one_in: int) -> dict[str, list[Row]]:
    """Rows by what stands in one column; a second row with the same text is left out."""
    splits: dict[str, dict[str, Row]] = {"train": {}, "valid": {}}
    for row in rows:
        split = "valid" if is_held_out(row[column], one_in=one_in) else "train"
        splits[split].setdefault(row[column], dict(row))
    return {name: list(kept.values()) for name, kept in splits.items()}
