"""Formats: one file in, a source out, by the suffix of its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ..errors import DataError
from .files import PACKED, File
from .names import is_language
from .parquet import Parquet
from .source import Memory, Records, Row, Source
from .tables import looks_tabular, read_csv, read_tsv

WHOLE = 2**30  # bytes of a .json file, which must be read whole


def suffix_of(name: str) -> str:
    """What a name says of its format, packing aside; `train.en.txt` and `a.conll.txt` say en and conll."""
    parts = name.lower().split(".")[1:]
    while parts and f".{parts[-1]}" in PACKED:
        parts.pop()
    if len(parts) > 1 and parts[-1] == "txt" and (parts[-2] == "conll" or is_language(parts[-2])):
        parts.pop()
    return parts[-1] if parts else ""


def read_file(file: File) -> Source:
    """A suffix nobody knows is read as plain text, which it must then be."""
    return READERS.get(suffix_of(file.path.name), read_text)(file)


def read_text(file: File) -> Source:
    """Every line is a row, blank ones included: they part paragraphs, and parallel files count them."""
    begins = ((start, number) for number, (start, _) in enumerate(file.lines(), 1))
    return Records(file, ["text"], begins, lambda text, line: {"text": text})


def _read_txt(file: File) -> Source:
    return read_tsv(file, "tab-separated") if looks_tabular(file) else read_text(file)


def _read_jsonl(file: File) -> Source:
    def parse(text: str, line: int) -> Row:
        return _row(_load(text, f"{file.name} line {line}"), f"{file.name} line {line}")

    begins = [(start, number) for number, (start, text) in enumerate(file.lines(), 1) if text.strip()]
    records = Records(file, [], begins, parse)
    records.columns = tuple(dict.fromkeys(column for row in islice(records, 100) for column in row))
    return records


def _read_json(file: File) -> Source:
    if file.size > WHOLE:
        raise DataError(
            f"{file.name} has {file.size / 2**30:.1f} GB, and JSON must be read whole; "
            f"save it as JSON lines (.jsonl), one object a line"
        )
    texts = [text for _, text in file.lines()]
    first = next((text for text in texts if text.strip()), "")
    if first.lstrip().startswith("{") and len(texts) > 1 and _is_object(first):
        return _read_jsonl(file)  # JSON lines under another name
    value = _load("\n".join(texts), file.name)
    rows = _rows(value, file)
    if not isinstance(rows, list):
        raise DataError(f"{file.name} holds {_kind(value)}; expected a list of objects: [{{...}}, ...]")
    if not rows:
        raise DataError(f"{file.name} has no rows; expected at least one")
    return Memory([_row(row, f"{file.name} row {i}") for i, row in enumerate(rows, 1)], [file])


def _read_conll(file: File) -> Source:
    """A token and its tag on each line, a blank line after each sentence."""

    def begins() -> Iterator[tuple[int, int]]:
        inside = False
        for number, (start, text) in enumerate(file.lines(), 1):
            blank = not text.strip() or text.startswith("-DOCSTART-")
            if not blank and len(text.split()) < 2:
                raise DataError(f"{file.name} line {number} has no tag; expected a token and its tag")
            if not blank and not inside:
                yield start, number
            inside = not blank

    def parse(text: str, line: int) -> Row:
        cells = [row.split() for row in text.split("\n") if row.strip() and not row.startswith("-DOCSTART-")]
        return {"tokens": [c[0] for c in cells], "tags": [c[-1] for c in cells]}

    return Records(file, ["tokens", "tags"], begins(), parse)


def _load(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {str(error)[:100]}; mend or remove it") from None


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _row(value: Any, where: str) -> Row:
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, dict):
        raise DataError(f"{where} holds {_kind(value)}; expected an object with named values: {{...}}")
    return value


def _rows(value: Any, file: File) -> Any:
    """A list as it is; of an object the list under `data`, SQuAD's tree laid flat; or the object itself."""
    if not isinstance(value, dict):
        return value
    if not isinstance(value.get("data"), list):
        return value if any(isinstance(inside, list) for inside in value.values()) else [value]
    try:
        return [row for article in value["data"] for row in _squad(article)]
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file.name} looks like SQuAD, but part of the tree is missing: {error}") from None


def _squad(article: Any) -> Iterator[Any]:
    if not isinstance(article, dict) or "paragraphs" not in article:
        yield article
        return
    for paragraph in article["paragraphs"]:
        for asked in paragraph["qas"]:
            answers = asked.get("answers", [])
            yield {"question": asked["question"], "context": paragraph["context"], "answers": answers}


def _kind(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a string", type(None): "null", bool: "a truth value"}
    return names.get(type(value), "a number")


READERS: dict[str, Callable[[File], Source]] = {
    "txt": _read_txt,
    "tsv": read_tsv,
    "csv": read_csv,
    "json": _read_json,
    "jsonl": _read_jsonl,
    "ndjson": _read_jsonl,
    "parquet": Parquet,
    "conll": _read_conll,
}
