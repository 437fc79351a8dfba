"""Formats: one file in, a source out, by the suffix of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import DataError
from .files import File
from .json_rows import read_json_source, read_jsonl_source
from .parquet import ParquetSource
from .schema import is_language_code
from .source import FileSource, Row, Source
from .tables import looks_tabular, read_csv, read_tsv
from .unpack import PACKED


def suffix_of(name: str) -> str:
    """The format suffix of a name without compression; `en` of train.en.txt, `conll` of a.conll.txt."""
    parts = name.lower().split(".")[1:]
    while parts and f".{parts[-1]}" in PACKED:
        parts.pop()
    if len(parts) > 1 and parts[-1] == "txt" and (parts[-2] == "conll" or is_language_code(parts[-2])):
        parts.pop()
    return parts[-1] if parts else ""


def read_source(file: File) -> Source:
    """Read a file by its suffix; one with an unknown suffix must be plain text."""
    return READERS.get(suffix_of(file.path.name), read_text)(file)


def read_text(file: File) -> Source:
    """Every line is a row, blank ones included: they separate paragraphs, and parallel files need them."""
    row_starts = ((start, number) for number, (start, _) in enumerate(file.lines(), 1))
    return FileSource(file, ["text"], row_starts, lambda text, line: {"text": text})


def _read_txt(file: File) -> Source:
    return read_tsv(file, "tab-separated") if looks_tabular(file) else read_text(file)


def _read_conll(file: File) -> Source:
    """A token and its tag on each line, a blank line after each sentence."""

    def row_starts() -> Iterator[tuple[int, int]]:
        in_sentence = False
        for number, (start, text) in enumerate(file.lines(), 1):
            blank = not text.strip() or text.startswith("-DOCSTART-")
            if not blank and len(text.split(None, 1)) < 2:
                raise DataError(f"{file.name} line {number} has no tag; expected a token and its tag")
            if not blank and not in_sentence:
                yield start, number
            in_sentence = not blank

    def parse(text: str, line: int) -> Row:
        lines = [row for row in text.split("\n") if row.strip() and not row.startswith("-DOCSTART-")]
        return {
            "tokens": [row.split(None, 1)[0] for row in lines],
            "tags": [row.rsplit(None, 1)[-1] for row in lines],
        }

    return FileSource(file, ["tokens", "tags"], row_starts(), parse)


READERS: dict[str, Callable[[File], Source]] = {
    "txt": _read_txt,
    "tsv": read_tsv,
    "csv": read_csv,
    "json": read_json_source,
    "jsonl": read_jsonl_source,
    "ndjson": read_jsonl_source,
    "parquet": ParquetSource,
    "conll": _read_conll,
}
