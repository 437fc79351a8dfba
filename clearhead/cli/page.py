"""A page of Markdown, laid out for a terminal or saved as HTML to print.

Rich breaks lines at spaces only and cuts what does not fit a table's column. Chinese has no spaces, and a cut
number is wrong, so both are done here: lines break between Chinese characters, never before a closing mark,
and no column is narrower than its longest word.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Any, ClassVar

from markdown_it import MarkdownIt
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Lines
from rich.markdown import Markdown, MarkdownElement, Paragraph, TableElement
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..errors import InputError

OPENING, CLOSING = "（《“‘「【", "，。、；：？！）》”’」】"
WIDE_CHARACTERS = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"  # Chinese, Japanese and full-width characters
# What a line break never divides: one wide character, or a word, with its punctuation and spaces.
PIECE = re.compile(
    rf"[{OPENING}]*(?:[^\s{WIDE_CHARACTERS}{OPENING}{CLOSING}]+|[^\s{OPENING}{CLOSING}])[{CLOSING}]*\s*|\S\s*|\s+"
)
GAP = 3  # spaces between two columns of a table


def longest_piece(text: str) -> int:
    return max((cell_len(piece.rstrip()) for piece in PIECE.findall(text)), default=0)


def breaks(text: str, width: int) -> list[int]:
    """Where to break a text so that every line fits; only a piece wider than a whole line is divided."""
    places: list[int] = []
    used = 0
    for match in PIECE.finditer(text):
        size = cell_len(match.group().rstrip())
        if used and used + size > width:
            places.append(match.start())
            used = 0
        if size > width:  # a very narrow terminal
            for offset, letter in enumerate(match.group().rstrip()):
                if used + cell_len(letter) > width:
                    places.append(match.start() + offset)
                    used = 0
                used += cell_len(letter)
            continue
        used += cell_len(match.group())
    return places


class _Prose(Text):
    """Text that is wrapped by `breaks`."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        lines = Lines()
        for line in self.split(allow_blank=True):
            for part in line.divide(breaks(line.plain, width)):
                part.rstrip()
                lines.append(part)
        return lines

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        lines = self.plain.splitlines() or [""]
        return Measurement(longest_piece(self.plain), max(map(cell_len, lines)))


def _prose(text: Text) -> _Prose:
    prose = _Prose()
    prose.append_text(text)
    return prose


class _Paragraph(Paragraph):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _prose(self.text)


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = self.header.row.cells if self.header is not None and self.header.row is not None else []
        names = [_prose(cell.content) for cell in head]
        rows = [[_prose(cell.content) for cell in row.cells] for row in (self.body.rows if self.body else [])]
        widths = column_widths([names, *rows], options.max_width - GAP * (len(names) - 1))
        if widths is None:
            yield from _stacked(names, rows)
            return
        has_names = any(name.plain for name in names)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=has_names)
        for name, width in zip(names, widths, strict=True):
            name.stylize("markdown.table.header")
            table.add_column(name, width=width)
        for row in rows:
            table.add_row(*row)
        yield table


def column_widths(rows: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """A width for each column, none below its longest piece; None if that does not fit.

    Columns of short texts get all they want first, the others share what remains.
    """
    columns = list(zip(*rows, strict=True))
    narrowest = [max(longest_piece(cell.plain) for cell in column) for column in columns]
    widest = [max(cell_len(cell.plain) for cell in column) for column in columns]
    if sum(narrowest) > room:
        return None
    widths = list(widest)
    waiting = sorted(range(len(columns)), key=lambda column: widest[column])
    while waiting:
        column, *waiting = waiting
        fair = max(narrowest[column], room // (len(waiting) + 1))
        reserved = sum(narrowest[other] for other in waiting)  # what the others need at least
        widths[column] = min(widest[column], fair, room - reserved)
        room -= widths[column]
    return widths


def _stacked(names: Sequence[Text], rows: Sequence[Sequence[Text]]) -> RenderResult:
    """A table too wide for the terminal: each row as a few lines, each cell after its column's name."""
    for row in rows:
        for name, cell in zip(names, row, strict=True):
            line = _Prose(f"{name.plain}: " if name.plain else "", style="bold")
            line.append_text(cell)
            yield line
        yield Text()


class Page(Markdown):
    """Markdown with our tables and line breaks; links are written out, because a pipe has no links."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "paragraph_open": _Paragraph,
        "table_open": _Table,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, code_theme="ansi_dark", hyperlinks=False)


STYLE = """
@page { size: A4; margin: 12mm }
body { max-width: 46em; margin: 2em auto; padding: 0 1em; color: #111;
  font: 15px/1.55 system-ui, "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif }
h1 { font-size: 1.5em; line-height: 1.2 } h2 { font-size: 1.2em; line-height: 1.2 }
table { border-collapse: collapse } thead:not(:has(th:not(:empty))) { display: none }
th, td { border: 1px solid #bbb; padding: .25em .5em; text-align: left; vertical-align: top }
pre { background: #f4f4f4; padding: .6em .8em; overflow-x: auto; white-space: pre-wrap }
code { font-family: ui-monospace, "DejaVu Sans Mono", "Noto Sans Mono CJK SC", monospace; font-size: .92em }
@media print {
  body { max-width: none; margin: 0; padding: 0; font-size: 10pt }
  pre, table, li { break-inside: avoid } h1, h2 { break-after: avoid }
  body.cheatsheet { font-size: 9.2pt; line-height: 1.42 }
  .cheatsheet h1 { margin: 0 0 .3em } .cheatsheet ul { margin: .5em 0; padding-left: 1.2em }
  .cheatsheet table { width: 100% } .cheatsheet td, .cheatsheet th { padding: .14em .45em }
}
"""


def html(text: str, *, name: str, title: str, lang: str, folder: Path) -> str:
    """The whole page as one HTML file without anything to fetch; pictures are found from `folder`."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    body = re.sub(r'(?<=<img src=")[^":]+(?=")', lambda match: _data_uri(folder / match.group()), body)
    return (
        f'<!doctype html>\n<html lang="{lang}">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f'<style>{STYLE}</style>\n<body class="{escape(name)}">\n{body}</body>\n</html>\n'
    )


def _data_uri(picture: Path) -> str:
    """A file as a data URI."""
    kind, _ = guess_type(picture.name)
    return f"data:{kind};base64,{b64encode(picture.read_bytes()).decode('ascii')}"


def save_html(path: Path, page: str) -> None:
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"cannot save {path}; expected a name ending in .html, which any browser prints")
    part = path.with_name(path.name + ".part")  # so that an older page stays whole until the new one is
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
