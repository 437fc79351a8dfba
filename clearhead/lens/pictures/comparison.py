"""Picture of a comparison: the text with the tokens that changed, the largest changes, and tables of heads.

The page is set in inches, from top to bottom: each block says its height and draws itself. Tokens are set in
a fixed-width font, so that the coloured boxes behind them fit wherever the picture is opened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unicodedata import east_asian_width

from ..comparison import Comparison, PartChange
from ..comparison_view import (
    CAPTIONS,
    KIND_NAMES,
    MEANINGS,
    Direction,
    HeadTable,
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
from ..output_change import TokenChange
from .canvas import FAINT, INK, Picture, chinese_font, picture

WIDTH = 11.0  # inches, as all that follow
GAP = 0.32  # between blocks
LINE = 0.2  # from line to line of small text
TOKEN_LINE, TOKEN_PAD = 0.31, 0.022
TOKEN_SIZE, TEXT_SIZE, SMALL = 10.0, 9.0, 8.0  # points
EM = 0.602 / 72  # inches of a character of the fixed-width font, per point
COLOURS: dict[Direction, tuple[int, int, int]] = {
    "more": (38, 105, 176), "less": (205, 92, 20), "other": (111, 66, 178),
}  # fmt: skip
TABLE_COLOURS: dict[str, Direction] = {"moved": "more", "energy": "other", "share": "less"}
MOST_TOKENS, MOST_CHANGES, MOST_PARTS = 600, 8, 7
TABLE_WIDTH, TOTAL_WIDTH = 3.4, 0.36  # of a table of heads, and of its last columns


@dataclass
class Page:
    """Blocks from top to bottom; each draws itself on axes in inches, from its own top."""

    blocks: list[tuple[float, Callable[[Any, float], None]]] = field(default_factory=list)

    def add(self, height: float, draw: Callable[[Any, float], None], gap: float = GAP) -> None:
        self.blocks.append((height + gap, draw))

    @property
    def height(self) -> float:
        return sum(height for height, _ in self.blocks)

    def draw(self, figure: Any, axes: Any) -> None:
        axes.remove()
        page = figure.add_axes((0, 0, 1, 1))
        page.set_xlim(0, WIDTH)
        page.set_ylim(self.height, 0)
        page.axis("off")
        top = 0.0
        for height, draw in self.blocks:
            draw(page, top)
            top += height


def draw_comparison(c: Comparison) -> Picture:
    page = Page()
    _add_title(page, c)
    _add_text(page, c)
    _add_changes(page, c)
    _add_tables(page, c)
    _add_parts(page, c)
    return picture(WIDTH, page.height, page.draw)


def _rgb(name: Direction, level: float) -> str:
    mixed = [round(255 + (x - 255) * level) for x in COLOURS[name]]
    return "#" + "".join(f"{x:02x}" for x in mixed)


def _ink(level: float) -> str:
    return "white" if level > 0.72 else INK


def _write(page: Any, x: float, y: float, text: str, size: float = TEXT_SIZE, **style: Any) -> None:
    page.text(x, y, text, fontsize=size, **{"va": "top", "color": INK} | style)


def _mono() -> list[str]:
    return [name for name in ("DejaVu Sans Mono", chinese_font(), "monospace") if name]


def _cells(text: str) -> int:
    """The width in characters of the fixed-width font."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _add_title(page: Page, c: Comparison) -> None:
    facts = [
        line for text in (" · ".join(filter(None, (c.title, c.tuning))),) for line in _wrapped(text, 150)
    ]
    facts += [note for text in c.notes for note in _wrapped(text, 150)]

    def draw(on: Any, top: float) -> None:
        _write(on, 0, top, f"{c.names[0]}  →  {c.names[1]}", 13, fontweight="bold")
        for i, line in enumerate(facts):
            _write(on, 0, top + 0.28 + i * LINE, line, SMALL, color="#5b6773")

    page.add(0.24 + LINE * len(facts), draw)


def _wrapped(text: str, cells: int) -> list[str]:
    """Lines of at most this many characters, broken between words, or anywhere in Chinese text."""
    lines, line = [], ""
    for word in _words(" ".join(text.split())):
        if line and _cells((line + word).rstrip()) > cells:
            lines.append(line.rstrip())
            line = ""
        line += word
        while _cells(line.rstrip()) > cells:
            cut = next(i for i in range(len(line), 0, -1) if _cells(line[:i]) <= cells)
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line.rstrip()] if line.strip() else lines


def _words(text: str) -> Iterator[str]:
    word = ""
    for letter in text:
        word += letter
        if letter == " " or east_asian_width(letter) in "WF":
            yield word
            word = ""
    if word:
        yield word


@dataclass(frozen=True)
class PlacedToken:
    token: TokenChange
    x: float
    line: int


def _placed(tokens: Sequence[TokenChange]) -> list[PlacedToken]:
    """Every token on its line; lines break between words, where there are spaces."""
    word: list[TokenChange] = []
    words: list[list[TokenChange]] = []
    for token in tokens:
        wide = any(east_asian_width(letter) in "WF" for letter in token.label)
        if word and (token.space or wide):
            words.append(word)
            word = []
        word.append(token)
    words += [word] if word else []
    placed, x, line = list[PlacedToken](), 0.0, 0
    for word in words:
        space = 0.09 if word[0].space else 0.0
        length = sum(_token_width(token) for token in word)
        if x and x + space + length > WIDTH:
            x, line, space = 0.0, line + 1, 0.0
        x += space if x else 0.0
        for token in word:
            if x and x + _token_width(token) > WIDTH:
                x, line = 0.0, line + 1
            placed.append(PlacedToken(token, x, line))
            x += _token_width(token)
    return placed


def _token_width(token: TokenChange) -> float:
    return _cells(_shown(token)) * EM * TOKEN_SIZE + TOKEN_PAD


def _shown(token: TokenChange) -> str:
    return token.label or ("▢" if token.change is not None else "")


def _add_text(page: Page, c: Comparison) -> None:
    placed, top_change = _placed(c.tokens[:MOST_TOKENS]), scale_top(c)
    lines = 1 + max((each.line for each in placed), default=0)
    source = _wrapped("".join(_source(c)), 130) if c.source else []
    left_out = len(c.tokens) - MOST_TOKENS

    def draw(on: Any, top: float) -> None:
        for i, line in enumerate(source):
            _write(on, 0, top + i * LINE, line, TEXT_SIZE, color="#5b6773", family=_mono())
        top += len(source) * LINE + (0.06 if source else 0.0)
        for each in placed:
            _draw_token(on, each, top, top_change)
        bottom = top + lines * TOKEN_LINE + 0.08
        if left_out > 0:
            _write(on, WIDTH, bottom, f"… {left_out} tokens more", SMALL, color=FAINT, ha="right")
        _draw_legend(on, bottom, c, top_change)

    page.add(len(source) * LINE + 0.06 + lines * TOKEN_LINE + 0.26, draw)


def _source(c: Comparison) -> Iterator[str]:
    end = 0
    for token in c.source:
        if not token.special:
            yield (" " if token.start > end else "") + token.text
            end = token.end


def _draw_token(on: Any, each: PlacedToken, top: float, top_change: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    token, level, y = each.token, shade(each.token, top_change), top + each.line * TOKEN_LINE
    width = _token_width(token)
    if level > 0.04:
        box = FancyBboxPatch(
            (each.x + 0.004, y + 0.012), width - 0.008, TOKEN_LINE - 0.075, linewidth=0,
            boxstyle="round,pad=0,rounding_size=0.035", facecolor=_rgb(direction(token), level), zorder=1,
        )  # fmt: skip
        on.add_patch(box)
    plain = token.change is None or (token.special and level <= 0.04)
    colour = FAINT if plain else _ink(level)
    weight = "bold" if token.is_switched else "normal"
    _write(on, each.x + width / 2, y + 0.125, _shown(token), TOKEN_SIZE, color=colour, ha="center",
           va="center", family=_mono(), zorder=2, fontweight=weight)  # fmt: skip


def _draw_legend(on: Any, top: float, c: Comparison, top_change: float) -> None:
    predicted = any(token.top_before for token in c.tokens)
    meanings: list[tuple[Direction, str]] = [
        ("other", "how much its state moved" if not predicted else "its prediction changed")
    ]
    if any(token.before is not None for token in c.tokens):
        meanings = [("less", "less likely than before"), ("more", "more likely than before")]
    x = 0.0
    for name, meaning in meanings:
        for i in range(12):
            on.add_patch(_rectangle(x + i * 0.055, top + 0.02, 0.056, 0.12, _rgb(name, (i + 1) / 12)))
        _write(on, x + 0.74, top, meaning, SMALL, color="#5b6773")
        x += 0.9 + len(meaning) * 0.062
    unit = "nats" if predicted else "of its length"
    most = f"darkest: {top_change:.2g} {unit}" + (
        " · bold: another best guess · ▢: the next token" if predicted else ""
    )
    _write(on, x, top, most, SMALL, color="#5b6773")


def _rectangle(x: float, y: float, width: float, height: float, colour: str, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=colour, linewidth=0, **style)


def _add_changes(page: Page, c: Comparison) -> None:
    """On the left the tokens that changed most, on the right numbers of the text and what is generated."""
    changes = [token for token in c.most_changed(MOST_CHANGES) if token.change and token.top_before]
    lines = list(_summary_lines(c))
    half = 5.9 if changes else 0.0
    texts = _text_lines(c, 74 if half else 140)
    rows = [1.4 + len(changes)] if changes else []
    labels = c.labels[:8]
    right = len(lines) + (1.6 + len(texts) if texts else 0) + (1.0 + len(labels) if labels else 0)

    def draw(on: Any, top: float) -> None:
        if changes:
            _draw_changes(on, top, changes)
        y = top
        for line in lines:
            _write(on, half, y, line)
            y += LINE
        if labels:
            _draw_labels(on, half, y + 0.5 * LINE, c)
            y += (1.0 + len(labels)) * LINE
        if texts:
            y += 0.6 * LINE
            _write(on, half, y, "How the text goes on" if c.texts and c.texts.prompt else "What is generated",
                   fontweight="bold")  # fmt: skip
            for i, (name, first, rest) in enumerate(texts):
                at = y + (i + 1.1) * LINE
                _write(on, half, at, name, SMALL, color=FAINT)
                _write(on, half + 0.55, at, first, SMALL, color=FAINT, family=_mono())
                _write(on, half + 0.55 + _cells(first) * EM * SMALL, at, rest, SMALL, family=_mono())

    height = max([*rows, right]) * LINE
    if height:
        page.add(height, draw)


def _summary_lines(c: Comparison) -> Iterator[str]:
    for name, (before, after) in c.summary.items():
        yield f"{name}   {before:.3f} → {after:.3f}"
    if c.cosine is not None:
        yield f"cosine of both vectors   {c.cosine:.3f}"
    yield from _wrapped(change_sentence(c), 68)


def _text_lines(c: Comparison, cells: int) -> list[tuple[str, str, str]]:
    """Lines of both texts: the name, what they have in common, and what they have not."""
    if c.texts is None:
        return []
    found = []
    same = common_beginning(c.texts.before, c.texts.after)
    for name, text in (("before", c.texts.before), ("after", c.texts.after)):
        left = len(" ".join(text[:same].split()))
        for i, line in enumerate(_wrapped(text, cells)[:4]):
            common = max(0, min(len(line), left))
            found.append((name if i == 0 else "", line[:common], line[common:]))
            left -= len(line) + 1
    return found


def _draw_changes(on: Any, top: float, changes: Sequence[TokenChange]) -> None:
    own = any(token.before is not None for token in changes)
    places = {"nats": 0.4, "token": 0.55, "p": 1.95, "before": 2.9, "after": 4.25}
    _write(on, 0, top, "Predictions that changed most", fontweight="bold")
    y = top + 1.1 * LINE
    heads = ("nats", "token", "its probability" if own else "", "best guess before", "after")
    for (name, x), head in zip(places.items(), heads, strict=True):
        _write(on, x, y, head, 7.5, color="#5b6773", ha="right" if name == "nats" else "left")
    for i, token in enumerate(changes):
        at, weight = y + (i + 1) * LINE, "bold" if token.is_switched else "normal"
        _mono_text(on, places["nats"], at, small_number(token.change or 0.0), ha="right")
        _mono_text(on, places["token"], at, _short(token.label or "next", 15), fontweight="bold")
        if token.before is not None:
            _mono_text(on, places["p"], at, f"{probability(token.before)} → {probability(token.after)}")
        guesses = ("before", token.top_before[0], "normal"), ("after", token.top_after[0], weight)
        for name, (word, share), own_weight in guesses:
            shown = f"{_short(word, 12)} {probability(share)}"
            _mono_text(on, places[name], at, shown, fontweight=own_weight)


def _mono_text(on: Any, x: float, y: float, text: str, **style: Any) -> None:
    _write(on, x, y, text, SMALL, family=_mono(), **style)


def _short(text: str, cells: int) -> str:
    while _cells(text) > cells:
        text = text[: -2 if text.endswith("…") else -1] + "…"
    return text


def _draw_labels(on: Any, x: float, top: float, c: Comparison) -> None:
    """Labels with bars: the outline is before, the bar after."""
    for i, label in enumerate(c.labels[:8]):
        y = top + i * LINE
        _write(on, x, y, _short(label.name, 18), TEXT_SIZE)
        if c.kind != "score":
            on.add_patch(_rectangle(x + 1.5, y + 0.02, 1.6 * label.after, 0.12, _rgb("other", 0.7)))
            on.plot([x + 1.5 + 1.6 * label.before] * 2, [y, y + 0.16], color=INK, linewidth=1.2)
        _write(on, x + 3.2, y, f"{label.before:.3f} → {label.after:.3f}", SMALL, family=_mono())


def _add_tables(page: Page, c: Comparison) -> None:
    for kind, tables in head_tables(c).items():
        drawn = [_TableLayout.of(table) for table in tables]
        name = KIND_NAMES[kind] if len(c.attention) > 1 else ""
        for group in _beside(drawn):
            height = max(each.height for each in group) + (0.22 if name else 0.0)
            page.add(height, _tables_of(group, name))
            name = ""


def _beside(tables: Sequence[_TableLayout]) -> Iterator[list[_TableLayout]]:
    """As many tables beside each other as there is room for."""
    group: list[_TableLayout] = []
    for table in tables:
        if group and sum(each.width + 0.3 for each in group) + table.width > WIDTH:
            yield group
            group = []
        group.append(table)
    if group:
        yield group


def _tables_of(group: Sequence[_TableLayout], name: str) -> Callable[[Any, float], None]:
    def draw(on: Any, top: float) -> None:
        if name:
            _write(on, 0, top, name[0].upper() + name[1:], fontweight="bold")
            top += 0.22
        room = (WIDTH - sum(each.width for each in group)) / max(1, len(group) - 1) if len(group) > 1 else 0
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
        colour = TABLE_COLOURS[table.measure]
        caption = CAPTIONS[table.measure]
        _write(on, left, top, f"{caption[0].upper()}{caption[1:]}, in %", fontweight="bold")
        first = top + 0.42
        every = math.ceil(0.15 / self.cell[0])
        for i, (name, (x, own)) in enumerate(zip(table.columns, self.places, strict=True)):
            if i >= table.heads or i % every == 0:
                _write(
                    on, left + x + own / 2, first - 0.03, name, 6.5, ha="center", va="bottom", color="#5b6773"
                )
        step = max(1, round(0.15 / height))
        for layer, row in enumerate(table.rows):
            y = first + layer * height
            if layer % step == 0:
                _write(
                    on, left + 0.26, y + height / 2, str(layer), 6.5, ha="right", va="center", color="#5b6773"
                )
            for value, (x, own) in zip(row, self.places, strict=True):
                self._draw_cell(on, (left + x, y, own, height), value, colour)
        _write(on, left, first + len(table.rows) * height + 0.05, "layer", 6.5, color=FAINT)

    def _draw_cell(
        self, on: Any, box: tuple[float, float, float, float], value: float | None, colour: Direction
    ) -> None:
        x, y, width, height = box
        level = self.table.level(value)
        face = "#f1f3f5" if value is None else _rgb(colour, 0.03 + 0.92 * level)
        on.add_patch(_rectangle(x + 0.008, y + 0.008, width - 0.016, height - 0.016, face))
        if value is not None and width >= 0.2 and height >= 0.15:
            number = round(100 * value)
            shown = f"{number}" if number else "·"
            _write(on, x + width / 2, y + height / 2, shown, 6.5, ha="center", va="center", color=_ink(level))


def _add_parts(page: Page, c: Comparison) -> None:
    found = largest_parts(c, MOST_PARTS)
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
                _write(on, x, top, title, fontweight="bold")
                _draw_parts(on, x, top + 1.3 * LINE, group, c)
        y = top + (rows + 1.9) * LINE
        _write(on, 0, y, lines[0][:1].upper() + lines[0][1:], fontweight="bold")
        for i, line in enumerate(lines[1:]):
            _write(on, 0, y + (i + 1.3) * LINE, line, 7.5, color="#5b6773")

    page.add((rows + 1.9 + 1.3 + len(lines)) * LINE, draw, gap=0.0)


def _draw_parts(on: Any, left: float, top: float, parts: Sequence[PartChange], c: Comparison) -> None:
    """Bars of shares; an upright line shows what the part makes alone."""
    full = max(1.0, *(part.share or 0.0 for part in parts), *(part.alone or 0.0 for part in parts))
    room, start = 2.1, left + 1.75
    for i, part in enumerate(parts):
        y = top + i * LINE
        own = room * max(part.share or 0.0, 0.0) / full
        _write(on, left, y + 0.065, part_name(part, list(c.depth)), SMALL, va="center")
        on.add_patch(_rectangle(start, y, room, 0.13, "#f1f3f5"))
        on.add_patch(_rectangle(start, y, own, 0.13, _rgb("less", 0.75)))
        told = percent(part.share or 0.0)
        if part.alone is not None:
            x = start + room * max(part.alone, 0.0) / full
            on.plot([x, x], [y - 0.015, y + 0.145], color=INK, linewidth=1.3)
            told += f" · alone {percent(part.alone)}"
        if part.energy is not None and part.alone is None:
            told += f" · weights {percent(part.energy)}"
        _write(on, start + room + 0.1, y + 0.065, told, SMALL, va="center")
