"""`clearhead learn try`: a short experiment, as a table with bars (or a plot) and a paragraph."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

from cyclopts import Parameter
from rich.markup import escape

from ..learn import Lang, language, pick
from ..learn.tries import find_try, tries
from .console import ERR, OUT, print_json, table
from .options import Json, Language

BAR_WIDTH = 16  # of the longest bar
COLUMNS, LINES = 56, 10  # of a plot


def attempt(
    name: Annotated[str | None, Parameter(help="name of an experiment (default: the list)")] = None,
    *,
    seed: Annotated[int, Parameter(help="random seed")] = 0,
    lang: Language = None,
    json: Json = False,
) -> None:
    """Answer a question by measuring: scale, no-mask, dropout, ... Without a name: the list of questions."""
    locale = language(lang)
    if name is None:
        _list(locale, json=json)
        return
    chosen = find_try(name)
    about = pick(locale, "about ten seconds", "大约十秒")
    if chosen.seconds != 10:
        about = pick(locale, f"about {chosen.seconds} seconds", f"大约 {chosen.seconds} 秒")
    ERR.print(pick(locale, f"measuring, {about} ...", f"测量中，{about}……"), style="dim")
    start = time.perf_counter()
    finding = chosen.measure(seed)
    if json:
        rows = [[cell.en if hasattr(cell, "en") else cell for cell in row] for row in finding.rows]
        columns = [words.en for words in finding.columns]
        print_json({"name": name, "seed": seed, "columns": columns, "rows": rows})
        return
    OUT.print(f"[bold]{escape(chosen.question[locale])}[/]\n")
    OUT.print(_result_table(finding, locale))
    if finding.plot is not None:
        OUT.print("\n" + _plot(finding, locale), markup=False)
    seconds = f"{time.perf_counter() - start:.1f} {pick(locale, 's', '秒')}"
    OUT.print(f"\n{escape(chosen.answer[locale])}")
    ERR.print(seconds, style="dim")


def _list(lang: Lang, *, json: bool) -> None:
    if json:
        print_json([{"name": each.name, "question": each.question} for each in tries().values()])
        return
    listing = table(pick(lang, "experiment", "实验"), pick(lang, "question", "问题"), no_wrap=(0,))
    for each in tries().values():
        listing.add_row(each.name, each.question[lang])
    OUT.print(listing)
    OUT.print(f"\n{pick(lang, 'run one', '运行一个')}  clearhead learn try no-mask")


def _result_table(finding: Any, lang: Lang) -> Any:
    """The table, and beside it a bar for each row of one column."""
    names = [words.zh if lang == "zh" else words.en for words in finding.columns]
    numbers = tuple(i for i, cell in enumerate(finding.rows[0]) if isinstance(cell, float))
    listing = table(*names, "", right=numbers)
    top = max(row[finding.bar] for row in finding.rows) or 1.0
    for row in finding.rows:
        cells = [_format_cell(cell, lang) for cell in row]
        # Block characters show eighths of a column.
        eighths = round(row[finding.bar] / top * BAR_WIDTH * 8)
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        listing.add_row(*cells, bar)
    return listing


def _format_cell(cell: Any, lang: Lang) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return escape(str(getattr(cell, lang, cell)))


def _plot(finding: Any, lang: Lang) -> str:
    """Points on two logarithmic axes: a power law is a straight line there."""
    across, up = finding.plot
    xs, ys = ([row[column] for row in finding.rows] for column in (across, up))
    lines = [[" "] * COLUMNS for _ in range(LINES)]
    for x, y in zip(xs, ys, strict=True):
        lines[LINES - 1 - _place(y, ys, LINES)][_place(x, xs, COLUMNS)] = "●"
    ends = {0: max(ys), LINES - 1: min(ys)}
    axis_labels = [f"{ends[i]:>6.3g} ┤" if i in ends else " " * 6 + " │" for i in range(LINES)]
    names = [pick(lang, finding.columns[i].en, finding.columns[i].zh) for i in (up, across)]
    low, high = _format_cell(min(xs), lang), _format_cell(max(xs), lang)
    axis = f"{low}{high:>{COLUMNS - len(low)}}"
    body = [mark + "".join(line).rstrip() for mark, line in zip(axis_labels, lines, strict=True)]
    note = pick(lang, "both axes logarithmic", "两轴均为对数")
    return "\n".join(
        [
            f"{names[0]}",
            *body,
            " " * 7 + "└" + "─" * COLUMNS,
            " " * 8 + axis,
            " " * 8 + f"{names[1]} ({note})",
        ]
    )


def _place(value: float, values: list[float], cells: int) -> int:
    low, high = math.log(min(values)), math.log(max(values))
    return round((math.log(value) - low) / ((high - low) or 1.0) * (cells - 1))
