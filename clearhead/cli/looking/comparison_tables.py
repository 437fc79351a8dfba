"""Attention, tables of heads and parts of a comparison as terminal output."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.markup import escape
from rich.text import Text

from ...lens import (
    CAPTIONS,
    MEANINGS,
    Comparison,
    Direction,
    HeadTable,
    cancel_sentence,
    head_tables,
    kept_sentence,
    kind_name,
    largest_parts,
    part_name,
    percent,
)
from ..console import OUT, table

SHADE_INK = "#1f2933"
SHADE_RAMPS: dict[Direction, tuple[str, ...]] = {
    "less": ("#fdf1e7", "#fbd9bb", "#f5b27f", "#e58544", "#cb611b"),
    "more": ("#edf3fa", "#cbdff2", "#98c1e6", "#62a0d6", "#3a80c1"),
    "other": ("#f4f0fa", "#e0d5f2", "#c3ade4", "#a483d3", "#8760c0"),
}
BAR_LETTERS = "▁▂▃▄▅▆▇█"
BAR_CELLS = 16  # of a full bar
NARROW_TERMINAL = 64  # columns of one that has no room for bars
PRINTED_LAYERS = 32


def heading(text: str) -> None:
    OUT.print()
    OUT.print(text, style="bold", markup=False)


def bar_of(share: float) -> str:
    """A bar of eighths of cells."""
    eighths = round(8 * BAR_CELLS * max(0.0, min(share, 1.0)))
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def shade_level(share: float, levels: int) -> int:
    return min(int(share * levels), levels - 1)


def print_attention(c: Comparison, top: int) -> None:
    for kind, change in c.attention.items():
        for reason in change.reasons:
            OUT.print(f"{kind_name(c, kind)} left out: {reason}", style="dim", markup=False)
        if not change.is_known:
            continue
        heading(f"{kind_name(c, kind)} that moved most")
        bars = OUT.width >= NARROW_TERMINAL
        columns = ("layer", "head", "moved", *([""] if bars else []), "from", "to", "weight")
        rows = table(*columns, right=(0, 1, 2), no_wrap=(0, 1, 2, len(columns) - 1))
        for link in change.links[: max(3, top // 2)]:
            moved = float(change.moved_LH[link.layer, link.head])
            if moved > 0:
                bar = [bar_of(moved)] if bars else []
                ends = escape(link.query), escape(link.key)
                weight = f"{link.before:.2f} → {link.after:.2f}"
                rows.add_row(str(link.layer), str(link.head), percent(moved), *bar, *ends, weight)
        OUT.print(rows if rows.row_count else "nothing moved")


def print_parts(c: Comparison, top: int) -> None:
    for kind, tables in head_tables(c).items():
        heading(
            f"by layer and head: {kind_name(c, kind)}" if len(c.attention) > 1 else "by layer and head, in %"
        )
        _print_side_by_side([_table_lines(each) for each in tables])
    measures = dict.fromkeys(each.measure for tables in head_tables(c).values() for each in tables)
    for measure in measures:
        OUT.print(f"{CAPTIONS[measure]}: {MEANINGS[measure]}", style="dim", soft_wrap=False)
    found = largest_parts(c, top)
    if found:
        heading("parts that carry the change")
        bars = OUT.width >= NARROW_TERMINAL
        rows = table("", "share", *([""] if bars else []), "alone", "weights", right=(1, 2 + bars, 3 + bars),
                     no_wrap=(1, 2, 3, 4))  # fmt: skip
        for i, part in enumerate(found):
            if i and part.step and not found[i - 1].step:
                rows.add_row()
            share = part.share or 0.0
            numbers = ["" if x is None else percent(x) for x in (part.alone, part.energy)]
            bar = [bar_of(share)] if bars else []
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
    colours = SHADE_RAMPS[heads.tint]
    names = Text().append("layer ", style="dim")
    for i, (name, cells) in enumerate(zip(heads.columns, wide, strict=True)):
        shown = name if cells > 1 or (i % 5 == 0 and len(name) == 1) else " "
        names.append(f"{shown[-cells:]:>{cells}}", style="dim")
    lines = [Text(CAPTIONS[heads.measure], style="bold"), names]
    for layer, row in enumerate(heads.rows[:PRINTED_LAYERS]):
        line = Text().append(f"{layer:>5} ", style="dim")
        for value, cells in zip(row, wide, strict=True):
            level, plain = shade_level(heads.level(value), 5), _cell(value, cells, heads.top)
            style = f"{SHADE_INK} on {colours[level]}" if level and OUT.color_system is not None else ""
            line.append(" " * (cells > 1))
            line.append(plain[cells > 1 :], style=style)
        lines.append(line)
    if len(heads.rows) > PRINTED_LAYERS:
        lines.append(Text(f"… {len(heads.rows) - PRINTED_LAYERS} layers more", style="dim"))
    return lines


def _cell(value: float | None, cells: int, top: float) -> str:
    if value is None:
        return " " * cells
    if cells == 1:
        return BAR_LETTERS[shade_level(max(value, 0.0) / top, 8)]
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


def on_one_line(text: str) -> str:
    return text.replace("\n", "⏎")
