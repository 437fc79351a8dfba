"""JSON: a .json or .jsonl file in, a source out. A list is read row by row, however long it is.

Values take far more memory than their text: `[]` is two bytes in a file and 64 in memory. So a text with
millions of brackets or commas raises an error before it is parsed, and only one row is parsed at a time.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..errors import DataError
from .files import MAX_LINE_BYTES, File
from .source import FileSource, InMemorySource, Row, Source

MAX_DELIMITERS = (
    4_000_000  # brackets, braces and commas of one value; 64 MB of English have about 800,000 commas
)
READ_BYTES = 2**20  # read at a time
SPACE = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder()


def read_jsonl_source(file: File) -> Source:
    def parse(text: str, line: int) -> Row:
        return _as_row(_load(text, f"{file.name} line {line}"), f"{file.name} line {line}")

    row_starts = ((start, number) for number, (start, text) in enumerate(file.lines(), 1) if text.strip())
    return _with_columns(FileSource(file, [], row_starts, parse))


def read_json_source(file: File) -> Source:
    """A list of rows; an object with a list under `data`, such as SQuAD; or JSON lines under another name."""
    start = _first_byte(file)
    if start is None:
        raise DataError(f"{file.name} has no rows; expected at least one")
    if file.read(start, start + 1) == b"[":
        return _with_columns(FileSource(file, [], _Elements(file).row_starts(), _parse_element, unit="row"))
    if _has_more_lines(file, start):
        return read_jsonl_source(file)
    if file.size > MAX_LINE_BYTES:
        raise DataError(
            f"{file.name} has {file.size / 2**20:,.0f} MB, and an object must be read whole; "
            f"save it as JSON lines (.jsonl), one object per line"
        )
    try:
        text = file.read(file.start, file.size).decode("utf-8")
    except UnicodeDecodeError:
        raise _not_utf8(file) from None
    value = _load(text, file.name)
    rows = _find_rows(value, file)
    if not isinstance(rows, list):
        raise DataError(f"{file.name} holds {_json_type(value)}; expected a list of objects: [{{...}}, ...]")
    if not rows:
        raise DataError(f"{file.name} has no rows; expected at least one")
    return InMemorySource([_as_row(row, f"{file.name} row {i}") for i, row in enumerate(rows, 1)], [file])


class _Elements:
    """The outermost list of a file, parsed through a moving window of text."""

    def __init__(self, file: File) -> None:
        self.file, self.read = file, file.start
        self.decode = codecs.getincrementaldecoder("utf-8")().decode
        self.text, self.at, self.byte, self.ended = "", 0, file.start, False

    def row_starts(self) -> Iterator[tuple[int, int]]:
        """The offset and number of each element, which must be a row of valid JSON."""
        self._advance(self._peek())  # the bracket
        number = 1
        if self._peek() == "]":
            return
        while True:
            yield self._element_start(number), number
            separator = self._peek()
            if separator not in (",", "]"):
                raise self._parse_error("Expecting ',' delimiter", number)
            self._advance(separator)
            if separator == "]":
                break
            number += 1
        if self._peek():
            raise self._parse_error("Extra data", number)

    def _element_start(self, number: int) -> int:
        """Parse one element to find its end; it is parsed again when its row is read."""
        if not self._peek():
            raise self._parse_error("Expecting value", number)
        start = self.byte
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.at)
                break
            except json.JSONDecodeError as error:
                # A value that is cut off by the end of the window, or one that is broken?
                cut = error.msg.startswith("Unterminated") or error.pos > len(self.text) - 32
                if self.ended or not cut:
                    raise self._parse_error(error.msg, number) from None
            except (ValueError, RecursionError) as error:  # too many digits, too many brackets
                raise self._parse_error(str(error)[:80], number) from None
            self._grow_window(number)
        _as_row(value, f"{self.file.name} row {number}")
        self._advance(self.text[self.at : end])
        return start

    def _peek(self) -> str:
        """The next character that is not white space, or "" at the end."""
        while True:
            match = SPACE.match(self.text, self.at)
            assert match is not None
            self._advance(match[0])
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self._read()

    def _advance(self, text: str) -> None:
        self.at += len(text)
        self.byte += len(text.encode("utf-8"))

    def _grow_window(self, number: int) -> None:
        """Double the window, so that a long element is not parsed too often."""
        self._read(max(READ_BYTES, len(self.text) - self.at))
        where = f"{self.file.name} row {number}"
        if len(self.text) > MAX_LINE_BYTES:
            raise DataError(
                f"{where} is larger than {MAX_LINE_BYTES // 2**20} MB; expected a list of small objects"
            )
        _check_delimiters(self.text, where)

    def _read(self, size: int = READ_BYTES) -> None:
        data = self.file.read(self.read, min(self.read + size, self.file.size))
        self.read += len(data)
        self.ended = self.read >= self.file.size or not data
        try:
            more = self.decode(data, final=self.ended)
        except UnicodeDecodeError:
            raise _not_utf8(self.file) from None
        self.text, self.at = self.text[self.at :] + more, 0

    def _parse_error(self, why: str, number: int) -> DataError:
        where = f"row {number}, from byte {self.byte + 1:,} on"
        return DataError(f"{self.file.name} is not JSON: {why} ({where}); fix or remove it")


def _parse_element(text: str, number: int) -> Row:
    value, _ = DECODER.raw_decode(text)
    return _as_row(value, f"row {number}")


def _with_columns(source: FileSource) -> FileSource:
    source.columns = tuple(dict.fromkeys(column for row in islice(source, 100) for column in row))
    return source


def _first_byte(file: File) -> int | None:
    """The offset of the first byte that is not white space."""
    for start in range(file.start, file.size, READ_BYTES):
        block = file.read(start, min(start + READ_BYTES, file.size))
        if rest := block.lstrip(b" \t\r\n"):
            return start + len(block) - len(rest)
    return None


def _has_more_lines(file: File, start: int) -> bool:
    """Whether the file is really JSON lines: an object on its first line, and more lines."""
    with file.handle() as handle:
        handle.seek(start)
        line = handle.readline(MAX_LINE_BYTES + 1)
    return start + len(line) < file.size and _is_object(line.decode("utf-8", "replace"))


def _not_utf8(file: File) -> DataError:
    try:
        for _ in file.lines():  # which names the line
            pass
    except DataError as error:
        return error
    return DataError(f"{file.name} is not UTF-8 text; save it as UTF-8")


def _check_delimiters(text: str, where: str) -> None:
    if sum(map(text.count, "[{,")) > MAX_DELIMITERS:
        raise DataError(
            f"{where} has more than {MAX_DELIMITERS:,} brackets and commas; expected text, or fewer values"
        )


def _load(text: str, where: str) -> Any:
    _check_delimiters(text, where)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {str(error)[:100]}; fix or remove it") from None


def _is_object(text: str) -> bool:
    try:
        return isinstance(_load(text, ""), dict)
    except DataError:
        return False


def _as_row(value: Any, where: str) -> Row:
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, dict):
        raise DataError(f"{where} holds {_json_type(value)}; expected an object with named values: {{...}}")
    return value


def _find_rows(value: Any, file: File) -> Any:
    """A list as it is; the list under `data` of an object, with SQuAD's nesting flattened; or the object."""
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
        for entry in paragraph["qas"]:
            answers = entry.get("answers", [])
            yield {"question": entry["question"], "context": paragraph["context"], "answers": answers}


def _json_type(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a string", type(None): "null", bool: "a truth value"}
    return names.get(type(value), "a number")
