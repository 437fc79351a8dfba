"""A comparison as terminal output: the text, its tokens, texts, attention and parts; as wide as the terminal.

Colours are for terminals; elsewhere the tokens that changed have a mark behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import set_cell_size
from rich.markup import escape
from rich.text import Text

from ...bundle import RowChanges
from ...lens import (
    CAPTIONS,
    KIND_NAMES,
    MEANINGS,
    Comparison,
    Direction,
    HeadTable,
    TokenChange,
    cancel_sentence,
    change_sentence,
    common_beginning,
    direction,
    head_tables,
    kept_sentence,
    largest_parts,
    part_name,
    percent,
    probability,
    scale_top,
    shade,
    small_number,
)
from ..console import OUT, READABLE_WIDTH, printable, table

INK = "#1f2933"
COLOURS: dict[Direction, tuple[str, ...]] = {
    "less": ("#fdf1e7", "#fbd9bb", "#f5b27f", "#e58544", "#cb611b"),
    "more": ("#edf3fa", "#cbdff2", "#98c1e6", "#62a0d6", "#3a80c1"),
    "other": ("#f4f0fa", "#e0d5f2", "#c3ade4", "#a483d3", "#8760c0"),
}
TABLE_COLOURS: dict[str, Direction] = {"moved": "more", "energy": "other", "share": "less"}
MARKS = " ▁▃▅▇"
BARS = "▁▂▃▄▅▆▇█"
BAR = 16  # cells of a full bar
NARROW = 64  # columns of a terminal that has no room for bars
MOST_TOKENS = 400  # of a text that are printed
MOST_ROWS = 32  # layers of a table that are printed


def print_comparison(c: Comparison, top: int) -> None:
    """The whole page; `top` tokens, heads and parts are listed."""
    width = min(OUT.width, READABLE_WIDTH)
    _print_title(c)
    _print_text(c, width)
    _print_summary(c)
    _print_labels(c)
    _print_tokens(c, top)
    _print_texts(c, width)
    _print_attention(c, top)
    _print_parts(c, top)


def _heading(text: str) -> None:
    OUT.print()
    OUT.print(text, style="bold", markup=False)


def _print_title(c: Comparison) -> None:
    OUT.print(f"{c.names[0]} → {c.names[1]}", style="bold", markup=False)
    OUT.print(" · ".join(filter(None, (c.title, c.tuning))), style="dim", markup=False, soft_wrap=False)
    if c.source:
        OUT.print(" ".join(token.label for token in c.source if not token.special), style="dim", markup=False,
                  soft_wrap=False)  # fmt: skip


def _print_text(c: Comparison, width: int) -> None:
    """The text, in which the colour of a token says how much its prediction changed."""
    OUT.print()
    top = scale_top(c)
    for line in _lines(list(_tokens(c.tokens[:MOST_TOKENS], top)), width - 2):
        OUT.print(Text("  ") + line, soft_wrap=True)
    if len(c.tokens) > MOST_TOKENS:
        OUT.print(f"  … {len(c.tokens) - MOST_TOKENS} tokens more", style="dim")
    OUT.print()
    OUT.print(_legend(c, top), soft_wrap=False)


def _tokens(tokens: Sequence[TokenChange], top: float) -> Iterator[tuple[bool, Text]]:
    """Every token with its colour, and whether a space stands before it."""
    for token in tokens:
        word = printable(token.label or ("▢" if token.change is not None else ""))
        level = _level(shade(token, top), 5)
        if token.change is None or (token.special and level == 0):
            yield token.space, Text(word, style="dim")
        elif OUT.color_system is None:
            yield token.space, Text(word + MARKS[level].strip())
        else:
            yield (
                token.space,
                Text(word, style=f"{INK} on {COLOURS[direction(token)][level]}" if level else ""),
            )


def _level(share: float, levels: int) -> int:
    return min(int(share * levels), levels - 1)


def _lines(tokens: list[tuple[bool, Text]], width: int) -> Iterator[Text]:
    """Lines that break between words; within a word only where it is longer than a line."""
    line, word, space = Text(), Text(), False
    for before, token in [*tokens, (True, Text())]:
        if before or word.cell_len + token.cell_len > width:
            if line.cell_len and line.cell_len + space + word.cell_len > width:
                yield line
                line, space = Text(), False
            line = line + Text(" " if space and line.cell_len else "") + word
            word, space = Text(), before
        word = word + token
    yield line


def _legend(c: Comparison, top: float) -> Text:
    predicted = any(token.top_before for token in c.tokens)
    what = "its prediction changed" if predicted else "its state moved"
    legend = Text("  ")
    colours: Sequence[tuple[Direction, str]] = (("other", f"how much {what}"),)
    if OUT.color_system is None:
        legend.append("▁▃▅▇")
    elif any(token.before is not None for token in c.tokens):
        colours = (("less", "less likely than before"), ("more", "more likely"))
    for name, meaning in colours:
        for colour in COLOURS[name][1:] if OUT.color_system is not None else ():
            legend.append("  ", style=f"on {colour}")
        legend.append(f" {meaning}   ", style="dim")
    legend.append(f"darkest: {top:.2g} {'nats' if predicted else 'of its length'}", style="dim")
    return legend


def _print_summary(c: Comparison) -> None:
    OUT.print()
    for name, (before, after) in c.summary.items():
        OUT.print(f"{name:<29}{before:8.3f}  →  {after:.3f}", markup=False)
    if c.cosine is not None:
        OUT.print(f"{'cosine of both vectors':<29}{c.cosine:8.3f}", markup=False)
    OUT.print(change_sentence(c), markup=False, soft_wrap=False)


def _print_labels(c: Comparison) -> None:
    if not c.labels:
        return
    rows = table("" if c.kind != "score" else "output", "before", "", "after", "", right=(1, 3))
    for label in c.labels[:12]:
        bars = ["", ""] if c.kind == "score" else [_bar(label.before), _bar(label.after)]
        rows.add_row(
            escape(label.name), f"{label.before:.3f}", f"[dim]{bars[0]}[/]", f"{label.after:.3f}", bars[1]
        )
    OUT.print()
    OUT.print(rows)


def _bar(share: float) -> str:
    """A bar of eighths of cells."""
    eighths = round(8 * BAR * max(0.0, min(share, 1.0)))
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def _print_tokens(c: Comparison, top: int) -> None:
    found = [token for token in c.most_changed(top) if token.change]
    if not found:
        return
    if not any(token.top_before for token in found):
        _heading("tokens whose state moved most")
        OUT.print(
            "  " + " · ".join(f"{t.label} {percent(t.change or 0)}" for t in found),
            markup=False,
            soft_wrap=False,
        )
        return
    _heading("tokens whose prediction changed most")
    own = any(token.before is not None for token in found)
    columns = ("nats", "token", *(("probability",) if own else ()), "guess before", "after")
    rows = table(*columns, right=(0,), no_wrap=(0, 1, 2) if own else (0, 1))
    for token in found:
        known = (
            f"{probability(token.before)} → {probability(token.after)}" if token.before is not None else ""
        )
        guesses = [Text(f"{word} {probability(p)}") for word, p in (token.top_before[0], token.top_after[0])]
        guesses[1].stylize("bold" if token.is_switched else "")
        label = escape(token.label or "next")
        rows.add_row(small_number(token.change or 0.0), label, *((known,) if own else ()), *guesses)
    OUT.print(rows)


def _print_texts(c: Comparison, width: int) -> None:
    if c.texts is None:
        return
    _heading("how the text goes on" if c.texts.prompt else "what is generated")
    same = common_beginning(c.texts.before, c.texts.after)
    for name, text in (("before", c.texts.before), ("after", c.texts.after)):
        shown = Text(
            printable(_on_one_line(text[:same])), style="dim" if c.texts.before != c.texts.after else ""
        )
        shown.append(printable(_on_one_line(text[same:])), style="default not dim")
        for i, line in enumerate(shown.wrap(OUT, width - 8)):
            OUT.print(Text(f"{'' if i else name:<8}", style="dim") + line)
    if c.texts.before == c.texts.after:
        OUT.print("the same text", style="dim")


def _on_one_line(text: str) -> str:
    return text.replace("\n", "⏎")


def _print_attention(c: Comparison, top: int) -> None:
    for kind, change in c.attention.items():
        for reason in change.reasons:
            OUT.print(f"{KIND_NAMES[kind]} left out: {reason}", style="dim", markup=False)
        if not change.is_known:
            continue
        _heading(f"{KIND_NAMES[kind]} that moved most")
        bars = OUT.width >= NARROW
        columns = ("layer", "head", "moved", *([""] if bars else []), "from", "to", "weight")
        rows = table(*columns, right=(0, 1, 2), no_wrap=(0, 1, 2, len(columns) - 1))
        for link in change.links[: max(3, top // 2)]:
            moved = float(change.moved_LH[link.layer, link.head])
            if moved > 0:
                bar = [_bar(moved)] if bars else []
                ends = escape(link.query), escape(link.key)
                weight = f"{link.before:.2f} → {link.after:.2f}"
                rows.add_row(str(link.layer), str(link.head), percent(moved), *bar, *ends, weight)
        OUT.print(rows if rows.row_count else "nothing moved")


def _print_parts(c: Comparison, top: int) -> None:
    for kind, tables in head_tables(c).items():
        _heading(
            f"by layer and head: {KIND_NAMES[kind]}" if len(c.attention) > 1 else "by layer and head, in %"
        )
        _print_side_by_side([_table_lines(each) for each in tables])
    measures = dict.fromkeys(each.measure for tables in head_tables(c).values() for each in tables)
    for measure in measures:
        OUT.print(f"{CAPTIONS[measure]}: {MEANINGS[measure]}", style="dim", soft_wrap=False)
    found = largest_parts(c, top)
    if found:
        _heading("parts that carry the change")
        bars = OUT.width >= NARROW
        rows = table("", "share", *([""] if bars else []), "alone", "weights", right=(1, 2 + bars, 3 + bars),
                     no_wrap=(1, 2, 3, 4))  # fmt: skip
        for part in found:
            share = part.share or 0.0
            numbers = ["" if x is None else percent(x) for x in (part.alone, part.energy)]
            bar = [_bar(share)] if bars else []
            rows.add_row(part_name(part, list(c.depth)), percent(share), *bar, *numbers)
        OUT.print(rows)
        for sentence in filter(None, (kept_sentence(c), cancel_sentence(c))):
            OUT.print(sentence, markup=False, soft_wrap=False)


def _table_lines(heads: HeadTable) -> list[Text]:
    """A table of percentages; without room for these, of bars."""
    digits = max(len(str(round(100 * value))) for row in heads.rows for value in row if value is not None)
    wide = [max(2, digits) + 1 if i < heads.heads else max(5, len(name), digits) + 1
            for i, name in enumerate(heads.columns)]  # fmt: skip
    if 6 + sum(wide) > OUT.width:
        wide[: heads.heads] = [1] * heads.heads
    colours = COLOURS[TABLE_COLOURS[heads.measure]]
    names = Text().append("layer ", style="dim")
    for i, (name, cells) in enumerate(zip(heads.columns, wide, strict=True)):
        shown = name if cells > 1 or (i % 5 == 0 and len(name) == 1) else " "
        names.append(f"{shown[-cells:]:>{cells}}", style="dim")
    lines = [Text(CAPTIONS[heads.measure], style="bold"), names]
    for layer, row in enumerate(heads.rows[:MOST_ROWS]):
        line = Text().append(f"{layer:>5} ", style="dim")
        for value, cells in zip(row, wide, strict=True):
            level, plain = _level(heads.level(value), 5), _cell(value, cells, heads.top)
            style = f"{INK} on {colours[level]}" if level and OUT.color_system is not None else ""
            line.append(" " * (cells > 1))
            line.append(plain[cells > 1 :], style=style)
        lines.append(line)
    if len(heads.rows) > MOST_ROWS:
        lines.append(Text(f"… {len(heads.rows) - MOST_ROWS} layers more", style="dim"))
    return lines


def _cell(value: float | None, cells: int, top: float) -> str:
    if value is None:
        return " " * cells
    if cells == 1:
        return BARS[_level(max(value, 0.0) / top, 8)]
    number = round(100 * value)
    return f"{number if number else '·':>{cells}}"


def _print_side_by_side(blocks: Sequence[list[Text]]) -> None:
    """Tables beside each other, as many as the terminal has room for."""
    while blocks:
        count, used = 0, 0
        for block in blocks:
            cells = max(line.cell_len for line in block) + (4 if count else 0)
            if count and used + cells > OUT.width:
                break
            count, used = count + 1, used + cells
        for lines in zip_longest(*blocks[:count], fillvalue=Text("")):
            whole = Text()
            for i, (line, block) in enumerate(zip(lines, blocks, strict=False)):
                whole.append_text(line)
                if i + 1 < count:
                    whole.append(" " * (4 + max(each.cell_len for each in block) - line.cell_len))
            OUT.print(whole)
        blocks = blocks[count:]
        OUT.print()


def print_rows(found: RowChanges, names: tuple[str, str], top: int) -> None:
    """The rows that changed most, one line each."""
    OUT.print(f"{names[0]} → {names[1]}", style="bold", markup=False)
    losses = found.rows[0].before is not None
    labels = bool(found.rows[0].best_after)
    middle = ("loss", "", "") if losses else ("before", "after") if labels else ()
    rows = table("row", "change", *middle, "text", right=(0, 1, 2, 4) if losses else (0, 1))
    for row in found.rows[:top]:
        cells: tuple[str | Text, ...] = ()
        if row.before is not None and row.after is not None:
            cells = f"{row.before:.2f}", "→", f"{row.after:.2f}"
        elif labels:
            cells = escape(row.best_before), Text(row.best_after, style="bold" if row.is_switched else "")
        text = set_cell_size(_on_one_line(row.text), max(20, OUT.width - 36)).rstrip()
        rows.add_row(str(row.row), f"{row.change:.3g}", *cells, escape(text))
    OUT.print(rows)
    parts = [f"{len(found.rows):,} rows", f"mean change {found.mean_change:.3g} {found.unit}"]
    if found.losses is not None:
        parts.append(f"mean loss {found.losses[0]:.3f} → {found.losses[1]:.3f}")
    if found.switched is not None:
        parts.append(f"{found.switched:,} with another label")
    OUT.print(" · ".join(parts), markup=False, soft_wrap=False)
