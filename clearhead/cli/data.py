"""`clearhead data check FILE`: what a model would learn from a file, before training."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import App, Parameter
from rich.markup import escape

from ..errors import ClearheadError, DataError, InputError
from .console import OUT, print_json, program
from .options import Json

if TYPE_CHECKING:
    from ..bundle import Bundle
    from ..data import DataReport, Schema, Source
    from ..recipes import FileCounts
    from ..text import Tokenizer

BARS = " ▁▂▃▄▅▆▇█"
MAX_LABEL_WIDTH = 40  # characters of a label
MAX_FIRST = 5_000  # characters of a part of row 1
# The recipe for rows without a model; `recipes.recipe_for` knows it for a given model.
RECIPES_BY_FORM = {
    "text": "lm", "pair": "translate", "prompt": "sft", "messages": "sft", "label": "classify",
    "labels": "classify", "score": "regress", "choice": "choose", "tags": "tag", "answer": "answer",
}  # fmt: skip
# What happens to rows that are too long; answers are never cut.
FATES = {"messages": "to be shortened to whole answers, or left out", "prompt": "to be left out"}
RECIPES_BY_KIND = {"similar": "embed"}
data = App(name="data", help="Check data before training on it.")


@data.command(name="check")
def check_files(
    *files: Annotated[str, Parameter(help="a file, parallel files, a folder, or a built-in corpus")],
    tokenizer: Annotated[
        str | None,
        Parameter(help="a folder, a Hub id or a .gguf file: count and show tokens as this model reads them"),
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
        reader, base = (None, None) if tokenizer is None else _read_model(tokenizer)
        report = check_data(source, mapping=parse_map(map or []), tokenizer=reader, length=length)
        if reader is not None and report.first_row is not None:
            report = replace(report, first=_first_batch(report, reader, base, length))
    except DataError as error:
        _exit_unusable(error)
    counts, why = None, report.why
    if reader is not None and not why:
        counts, why = _count_trained(report.schema, source, reader, base, length)
    if json:
        print_json(report.to_dict() | ({"trained_tokens": counts.to_dict()} if counts else {}))
    else:
        _print(report, " ".join(files), counts)
    if why:
        _exit_unusable(DataError(why))
    if not json:
        columns = [f"--map {' '.join(quote(word) for word in map)}"] if map else []
        words = [
            _recipe(report, base),
            *(quote(file) for file in files),
            *columns,
            "--from",
            quote(tokenizer or "MODEL"),
        ]
        # Not wrapped: a command is there to be copied.
        OUT.print(f"train        {program()} train {' '.join(words)}", markup=False, soft_wrap=True)


def _exit_unusable(error: ClearheadError) -> NoReturn:
    sys.stderr.write(f"clearhead: {' '.join(str(error).split())}\n")
    sys.exit(3)


def _read_model(name: str) -> tuple[Tokenizer, Bundle | None]:
    """The tokenizer of a model, and the model itself where there is one; weights stay on disk."""
    from ..text import Tokenizer

    path = Path(name)
    if path.is_dir() and not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        tokenizer, base = Tokenizer.read(path), None
    elif path.exists() or "/" in name:  # a folder, a .gguf file, or a Hub id
        from ..bundle import open_mapped

        base = open_mapped(name)
        tokenizer = base.tokenizer
    else:
        tokenizer, base = None, None
    if tokenizer is None:
        raise InputError(
            f"there is no tokenizer in {name!r}; expected a model, or a folder with tokenizer.json"
        )
    return tokenizer, base


def _first_batch(
    report: DataReport, tokenizer: Tokenizer, base: Bundle | None, length: int | None
) -> list[tuple[str, bool]]:
    from ..recipes import preview_batch

    assert report.first_row is not None
    labels = list(report.labels)
    return preview_batch(report.schema, report.first_row, tokenizer, base, labels=labels, length=length)


def _count_trained(
    schema: Schema, source: Source, tokenizer: Tokenizer, base: Bundle | None, length: int | None
) -> tuple[FileCounts | None, str]:
    """How many tokens are trained, or why training would refuse the rows with this model."""
    from ..recipes import count_file

    try:
        return count_file(schema, source, tokenizer, base, length=length), ""
    except DataError as error:
        return None, str(error).removeprefix("train: ")


def _recipe(report: DataReport, base: Bundle | None) -> str:
    """The recipe for these rows. Its module needs torch, which a check without a model does not import."""
    if base is not None:
        from ..recipes import recipe_for

        return recipe_for(report.schema, base)
    return RECIPES_BY_KIND.get(report.schema.kind) or RECIPES_BY_FORM[report.schema.form]


def _print(report: DataReport, name: str, trained: FileCounts | None) -> None:
    columns = _join_first(report.columns, ", ")
    about = [f"{report.rows:,} {report.rows_are}", report.encoding, f"columns: {columns}", report.note]
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
    if trained is not None:
        _print_counts(trained, report)
    if report.first:
        _print_first(report)


def _print_counts(counts: FileCounts, report: DataReport) -> None:
    """How many tokens the loss counts, over the file or its first rows."""
    trained, tokens, without = counts.counts.trained, counts.counts.tokens, counts.counts.without
    where = f"{counts.rows:,} rows"
    if counts.rows < report.usable:
        where = f"the first {counts.rows:,} of {report.usable:,} rows"
    none = f"{without:,} {'has' if without == 1 else 'have'} none" if without else "each has some"
    share = f"{trained.total / max(tokens.total, 1):.1%}"
    OUT.print(f"trained      {trained.total:,} of {tokens.total:,} tokens ({share}) in {where}; {none}")
    for note in counts.notes:
        OUT.print(f"             {escape(note)}", soft_wrap=True)


def _print_first(report: DataReport) -> None:
    """Row 1; what the loss counts is in colour on a terminal, in marks elsewhere."""
    seen = (
        "as the model sees it" if report.unit == "tokens" else "as text (--tokenizer MODEL shows its tokens)"
    )
    legend = "[bright_black]grey[/]: without loss" if OUT.is_terminal else "«marked»: with loss"
    OUT.print(f"row 1, {seen}; {legend}")
    parts = []
    for text, trained in report.first:
        text = escape(text[:MAX_FIRST])
        if OUT.is_terminal:
            parts.append(text if trained else f"[bright_black]{text}[/]")
        else:
            parts.append(f"«{text}»" if trained else text)
    OUT.print("  " + "".join(parts).replace("\n", "⏎\n  "))


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
        fate = FATES.get(report.schema.form, "to be truncated")
        too_long = f"{len(report.over_long):,} longer than {report.limit:,} {report.unit}, {fate}"
        problems.append(f"{too_long} ({format_row_numbers(report.over_long)})")
    return problems


def _bars(histogram: tuple[int, ...]) -> str:
    top = max(histogram) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // top)] for count in histogram)
