"""`clearhead data check FILE`: what a model would learn from a file, before training."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import App, Parameter
from rich.markup import escape

from ..errors import ClearheadError, DataError, InputError
from .console import OUT, print_json
from .options import Json

if TYPE_CHECKING:
    from ..data import DataReport
    from ..text import Tokenizer

BARS = " ▁▂▃▄▅▆▇█"
MAX_LABEL_WIDTH = 40  # characters of a label
data = App(name="data", help="Check data before training on it.")


@data.command(name="check")
def check_files(
    *files: Annotated[str, Parameter(help="a file, parallel files, a folder, or a built-in corpus")],
    tokenizer: Annotated[
        str | None, Parameter(help="folder with a tokenizer.json: count tokens with it")
    ] = None,
    length: Annotated[
        int | None, Parameter(help="maximum length of the model; longer rows are listed")
    ] = None,
    map: Annotated[
        list[str] | None,
        Parameter(help="role=column, such as prompt=question completion=answer", consume_multiple=True),
    ] = None,
    split: Annotated[str | None, Parameter(help="split of a folder: train, valid or test")] = None,
    json: Json = False,
) -> None:
    """Show columns, format, lengths, problems, and row 1 as the model will see it. Exit 3 if unusable.

    FILES may be .txt .tsv .csv .json .jsonl .parquet .conll, compressed with gzip or xz; two parallel files;
    a folder; or a built-in corpus such as grammar-en-zh.
    """
    from ..data import check_data, parse_map, read_rows

    try:
        source = read_rows(files[0] if len(files) == 1 else list(files), split=split)
        report = check_data(
            source, mapping=parse_map(map or []), tokenizer=_read_tokenizer(tokenizer), length=length
        )
    except DataError as error:
        _exit_unusable(error)
    if json:
        print_json(report.to_dict())
    else:
        _print(report, " ".join(files))
    if report.why:
        _exit_unusable(DataError(report.why))


def _exit_unusable(error: ClearheadError) -> NoReturn:
    sys.stderr.write(f"clearhead: {' '.join(str(error).split())}\n")
    sys.exit(3)


def _read_tokenizer(folder: str | None) -> Tokenizer | None:
    from ..text import Tokenizer

    if folder is None:
        return None
    tokenizer = Tokenizer.read(folder) if Path(folder).is_dir() else None
    if tokenizer is None:
        raise InputError(f"there is no tokenizer in {folder!r}; expected a folder with tokenizer.json")
    return tokenizer


def _print(report: DataReport, name: str) -> None:
    columns = _join_first(report.columns, ", ")
    about = [f"{report.rows:,} rows", report.encoding, f"columns: {columns}", report.note]
    OUT.print(f"[bold]{escape(name)}[/] · {escape(' · '.join(filter(None, about)))}")
    OUT.print(f"looks like   [bold]{escape(str(report.schema))}[/]  {escape(report.schema.reason)}")
    for other in report.others[:3]:
        OUT.print(f"or else      {escape(str(other))}  {escape(other.reason)}")
    for role, lengths in report.lengths.items():
        spread = (
            f"{lengths.min:,} to {lengths.max:,}, half up to {lengths.median:,}, 95 % up to {lengths.p95:,}"
        )
        OUT.print(f"{escape(role):<13}{spread} {report.unit}  {_bars(lengths.histogram)}")
    if report.labels:
        counts = [f"{label[:MAX_LABEL_WIDTH]} {count:,}" for label, count in report.labels.items()]
        OUT.print(f"labels       {escape(_join_first(counts, ' · '))}")
    OUT.print(f"problems     {escape(' · '.join(_problems(report)) or 'none')}")
    if report.first:
        OUT.print("row 1, as the model sees it  ([bright_black]grey[/] = not trained on)")
        parts = [escape(t) if trained else f"[bright_black]{escape(t)}[/]" for t, trained in report.first]
        OUT.print("  " + "".join(parts).replace("\n", "⏎\n  ")[:20_000])


def _join_first(names: Sequence[str], separator: str, most: int = 12) -> str:
    """The first of many names, each cut to one line."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return separator.join(name[: 2 * MAX_LABEL_WIDTH] for name in names[:most]) + more


def _problems(report: DataReport) -> list[str]:
    from ..data import format_row_numbers

    problems = [
        f"{what} ({format_row_numbers(rows)})"
        for what, rows in (*report.wrong.items(), *report.empty.items())
    ]
    if report.duplicates:
        problems.append(f"{len(report.duplicates):,} duplicates ({format_row_numbers(report.duplicates)})")
    if report.over_long:
        too_long = f"{len(report.over_long):,} longer than {report.limit:,} {report.unit}, to be truncated"
        problems.append(f"{too_long} ({format_row_numbers(report.over_long)})")
    return problems


def _bars(histogram: tuple[int, ...]) -> str:
    top = max(histogram) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // top)] for count in histogram)
