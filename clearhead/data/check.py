"""Checks of a data source before training: a source in; a report about its rows out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..text import Tokenizer
from .detect import Schema, detect_schemas
from .documents import Paragraphs, is_prose
from .preview import Segment
from .source import Row, Source
from .tally import RowNumbers, Tally, format_row_numbers


@dataclass(frozen=True)
class LengthSummary:
    """The lengths of the texts of one role, with a histogram of eight equal bins from min to max."""

    min: int
    median: int
    p95: int
    max: int
    histogram: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """`wrong` rows must be fixed; empty rows are skipped, over-long ones truncated, duplicates kept."""

    files: dict[str, str]  # name -> sha256
    rows: int
    rows_are: str  # rows, or paragraphs of prose
    encoding: str
    note: str
    columns: tuple[str, ...]
    schema: Schema
    others: tuple[Schema, ...]
    unit: str  # tokens or characters
    lengths: dict[str, LengthSummary]
    limit: int | None
    empty: dict[str, RowNumbers]  # what is empty -> which rows
    wrong: dict[str, RowNumbers]  # what is wrong -> which rows
    over_long: RowNumbers
    duplicates: RowNumbers
    labels: dict[str, int]
    first: list[Segment]
    first_row: Row | None  # in its canonical form
    usable: int  # rows
    why: str  # the data cannot be used; empty if it can

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        for name in ("schema", "others", "first_row"):
            del plain[name]
        schemas = [
            {"kind": s.kind, "columns": dict(s.columns), "reason": s.reason}
            for s in (self.schema, *self.others)
        ]
        return plain | {"shape": schemas[0], "others": schemas[1:]}


def check_data(
    source: Source,
    *,
    mapping: Mapping[str, str] | None = None,
    tokenizer: Tokenizer | None = None,
    length: int | None = None,
) -> DataReport:
    """Reads every row once. `length` is what the model takes: tokens, or characters without a tokenizer."""
    if length is not None and length < 1:
        raise InputError(f"length is {length}; expected at least 1")
    schema, *others = detect_schemas(source, mapping)
    limit = length or (tokenizer.model_max_length if tokenizer else None)
    prose = is_prose(source) and schema.form == "text"
    if prose:
        source, others = Paragraphs(source), []
        schema = replace(schema, reason="prose: blank lines between paragraphs; each file is one text")
    # A language model reads prose in rows of its own length: nothing of it is cut off.
    tally = Tally(schema, tokenizer, None if prose else limit)
    tally.count(source)
    return DataReport(
        files=source.hashes(),
        rows=len(source),
        rows_are="paragraphs" if prose else "rows",
        encoding=source.encoding,
        note=source.note,
        columns=source.columns,
        schema=schema,
        others=tuple(others),
        unit="tokens" if tokenizer else "characters",
        lengths={role: _summarize(np.array(values)) for role, values in tally.lengths.items()},
        limit=limit,
        empty=tally.empty,
        wrong=tally.wrong,
        over_long=tally.over_long,
        duplicates=[] if prose else tally.duplicates,
        labels=dict(sorted(tally.labels.items(), key=lambda item: (-item[1], item[0]))),
        first=tally.first,
        first_row=tally.first_row,
        usable=tally.usable,
        why=_reason_unusable(source, tally),
    )


def _reason_unusable(source: Source, tally: Tally) -> str:
    if tally.wrong:
        what, rows = max(tally.wrong.items(), key=lambda item: len(item[1]))
        others = sum(map(len, tally.wrong.values())) - len(rows)
        more = f"; {others:,} more rows have other faults" if others else ""
        return f"{source.where(rows[0] - 1)}: {what} ({format_row_numbers(rows)}){more}; fix or remove them"
    if not tally.usable:
        what, rows = next(iter(tally.empty.items()))
        return f"there is nothing to train on: {what} ({format_row_numbers(rows)})"
    return ""


def _summarize(values: np.ndarray[Any, Any]) -> LengthSummary:
    counts, _ = np.histogram(values, bins=8)
    middle, high = (int(np.percentile(values, share, method="lower")) for share in (50, 95))
    return LengthSummary(int(values.min()), middle, high, int(values.max()), tuple(counts.tolist()))
