"""Tables of heads and bars of parts, for the picture of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..comparison import Comparison, PartChange
from ..comparison_view import (
    CAPTIONS,
    MEANINGS,
    HeadTable,
    cancel_sentence,
    head_tables,
    kept_sentence,
    kind_name,
    largest_parts,
    part_name,
    percent,
)
from .canvas import FAINT, INK
from .sheet import QUIET, SHEET_WIDTH, SMALL_SIZE, TEXT_LINE, Sheet, ink_on, put_text, rectangle, tint

TABLE_WIDTH, TOTAL_WIDTH = 3.4, 0.36  # inches of a table of heads, and of each of its last columns
DRAWN_PARTS = 7


def add_tables(sheet: Sheet, c: Comparison) -> None:
    for kind, tables in head_tables(c).items():
        drawn = [_TableLayout.of(table) for table in tables]
        name = kind_name(c, kind) if len(c.attention) > 1 else ""
        for group in _beside(drawn):
            height = max(each.height for each in group) + (0.22 if name else 0.0)
            sheet.add(height, _tables_of(group, name))
            name = ""


def _beside(tables: Sequence[_TableLayout]) -> Iterator[list[_TableLayout]]:
    """As many tables beside each other as there is room for."""
    group: list[_TableLayout] = []
    for table in tables:
        if group and sum(each.width + 0.3 for each in group) + table.width > SHEET_WIDTH:
            yield group
            group = []
        group.append(table)
    if group:
        yield group


def _tables_of(group: Sequence[_TableLayout], name: str) -> Callable[[Any, float], None]:
    def draw(on: Any, top: float) -> None:
        if name:
            put_text(on, 0, top, name[0].upper() + name[1:], fontweight="bold")
            top += 0.22
        room = (
            (SHEET_WIDTH - sum(each.width for each in group)) / max(1, len(group) - 1)
            if len(group) > 1
            else 0
        )
        x = 0.0
        for layout in group:
            layout.draw(on, x, top)
            x += layout.width + min(room, 0.6)

    return draw


@dataclass(frozen=True)
class _TableLayout:
    """A table of heads: the sizes of its cells follow from their number."""

    table: HeadTable
    cell: tuple[float, float]

    @staticmethod
    def of(table: HeadTable) -> _TableLayout:
        room = TABLE_WIDTH - 0.32 - (len(table.columns) - table.heads) * (TOTAL_WIDTH + 0.06)
        width = max(0.09, min(0.31, room / max(1, table.heads)))
        return _TableLayout(table, (width, max(0.09, min(0.24, 4.6 / len(table.rows)))))

    @property
    def places(self) -> list[tuple[float, float]]:
        """The left edge and the width of every column."""
        width, _ = self.cell
        found, x = [], 0.32
        for i in range(len(self.table.columns)):
            if i >= self.table.heads:
                x += 0.06
            own = width if i < self.table.heads else TOTAL_WIDTH
            found.append((x, own))
            x += own
        return found

    @property
    def width(self) -> float:
        x, own = self.places[-1]
        return max(x + own, 2.5)

    @property
    def height(self) -> float:
        return 0.62 + len(self.table.rows) * self.cell[1]

    def draw(self, on: Any, left: float, top: float) -> None:
        table, (_, height) = self.table, self.cell
        colour = table.tint
        caption = CAPTIONS[table.measure]
        put_text(on, left, top, f"{caption[0].upper()}{caption[1:]}, in %", fontweight="bold")
        first = top + 0.42
        every = math.ceil(0.15 / self.cell[0])
        for i, (name, (x, own)) in enumerate(zip(table.columns, self.places, strict=True)):
            if i >= table.heads or i % every == 0:
                put_text(
                    on, left + x + own / 2, first - 0.03, name, 6.5, ha="center", va="bottom", color=QUIET
                )
        step = max(1, round(0.15 / height))
        for layer, row in enumerate(table.rows):
            y = first + layer * height
            if layer % step == 0:
                put_text(
                    on, left + 0.26, y + height / 2, str(layer), 6.5, ha="right", va="center", color=QUIET
                )
            for value, (x, own) in zip(row, self.places, strict=True):
                self._draw_cell(on, (left + x, y, own, height), value, colour)
        put_text(on, left, first + len(table.rows) * height + 0.05, "layer", 6.5, color=FAINT)

    def _draw_cell(
        self, on: Any, box: tuple[float, float, float, float], value: float | None, colour: str
    ) -> None:
        x, y, width, height = box
        level = self.table.level(value)
        face = "#f1f3f5" if value is None else tint(colour, 0.03 + 0.92 * level)
        on.add_patch(rectangle(x + 0.008, y + 0.008, width - 0.016, height - 0.016, face))
        if value is not None and width >= 0.2 and height >= 0.15:
            number = round(100 * value)
            shown = f"{number}" if number else "·"
            put_text(
                on, x + width / 2, y + height / 2, shown, 6.5, ha="center", va="center", color=ink_on(level)
            )


def add_parts(sheet: Sheet, c: Comparison) -> None:
    found = largest_parts(c, DRAWN_PARTS)
    groups = [part for part in found if not part.step], [part for part in found if part.step]
    if not found:
        return
    rows = max(len(group) for group in groups)
    lines = [kept_sentence(c), *filter(None, [cancel_sentence(c)])]
    measures = dict.fromkeys(each.measure for tables in head_tables(c).values() for each in tables)
    lines += [f"{CAPTIONS[m]}: {MEANINGS[m]}" for m in measures]

    def draw(on: Any, top: float) -> None:
        for x, title, group in zip(
            (0, 5.7), ("Layers that carry the change", "Inside the layers"), groups, strict=True
        ):
            if group:
                put_text(on, x, top, title, fontweight="bold")
                _draw_parts(on, x, top + 1.3 * TEXT_LINE, group, c)
        y = top + (rows + 1.9) * TEXT_LINE
        put_text(on, 0, y, lines[0][:1].upper() + lines[0][1:], fontweight="bold")
        for i, line in enumerate(lines[1:]):
            put_text(on, 0, y + (i + 1.3) * TEXT_LINE, line, 7.5, color=QUIET)

    sheet.add((rows + 1.9 + 1.3 + len(lines)) * TEXT_LINE, draw, gap=0.0)


def _draw_parts(on: Any, left: float, top: float, parts: Sequence[PartChange], c: Comparison) -> None:
    """Bars of shares; an upright line shows what the part makes alone."""
    full = max(1.0, *(part.share or 0.0 for part in parts), *(part.alone or 0.0 for part in parts))
    names = [part_name(part, list(c.depth)) for part in parts]
    start = left + max(1.5, 0.1 + 0.062 * max(map(len, names)))
    room = left + 3.85 - start
    for i, part in enumerate(parts):
        y = top + i * TEXT_LINE
        own = room * max(part.share or 0.0, 0.0) / full
        put_text(on, left, y + 0.065, names[i], SMALL_SIZE, va="center")
        on.add_patch(rectangle(start, y, room, 0.13, "#f1f3f5"))
        on.add_patch(rectangle(start, y, own, 0.13, tint("less", 0.75)))
        told = percent(part.share or 0.0)
        if part.alone is not None:
            x = start + room * max(part.alone, 0.0) / full
            on.plot([x, x], [y - 0.015, y + 0.145], color=INK, linewidth=1.3)
            told += f" · alone {percent(part.alone)}"
        if part.energy is not None and part.alone is None:
            told += f" · weights {percent(part.energy)}"
        put_text(on, start + room + 0.1, y + 0.065, told, SMALL_SIZE, va="center")
