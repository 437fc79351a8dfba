"""Picture of a comparison: the text with the tokens that changed, the largest changes, tables of heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width

from ..comparison import Comparison
from ..comparison_view import (
    Direction,
    change_sentence,
    common_beginning,
    direction,
    probability,
    scale_top,
    shade,
    small_number,
    texts_title,
)
from ..output_change import TokenChange
from .canvas import FAINT, INK, Picture
from .comparison_tables import add_parts, add_tables
from .sheet import (
    FIXED_WIDTH,
    QUIET,
    SHEET_WIDTH,
    SMALL_SIZE,
    TEXT_LINE,
    TEXT_SIZE,
    Sheet,
    ink_on,
    mono_fonts,
    put_mono,
    put_text,
    rectangle,
    shortened_to,
    text_cells,
    text_width,
    tint,
    wrapped_lines,
)

TOKEN_LINE, TOKEN_PAD, TOKEN_SIZE = 0.31, 0.022, 10.0  # inches, and points
DRAWN_TOKENS, DRAWN_CHANGES = 600, 8


def draw_comparison(c: Comparison) -> Picture:
    sheet = Sheet()
    _add_title(sheet, c)
    _add_text(sheet, c)
    _add_changes(sheet, c)
    add_tables(sheet, c)
    add_parts(sheet, c)
    return sheet.picture()


def _add_title(sheet: Sheet, c: Comparison) -> None:
    facts = [
        line for text in (" · ".join(filter(None, (c.title, c.tuning))),) for line in wrapped_lines(text, 150)
    ]
    facts += [note for text in c.notes for note in wrapped_lines(text, 150)]

    def draw(on: Any, top: float) -> None:
        put_text(on, 0, top, f"{c.names[0]}  →  {c.names[1]}", 13, fontweight="bold")
        for i, line in enumerate(facts):
            put_text(on, 0, top + 0.28 + i * TEXT_LINE, line, SMALL_SIZE, color=QUIET)

    sheet.add(0.24 + TEXT_LINE * len(facts), draw)


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
        if x and x + space + length > SHEET_WIDTH:
            x, line, space = 0.0, line + 1, 0.0
        x += space if x else 0.0
        for token in word:
            if x and x + _token_width(token) > SHEET_WIDTH:
                x, line = 0.0, line + 1
            placed.append(PlacedToken(token, x, line))
            x += _token_width(token)
    return placed


def _token_width(token: TokenChange) -> float:
    return text_cells(_shown(token)) * FIXED_WIDTH * TOKEN_SIZE + TOKEN_PAD


def _shown(token: TokenChange) -> str:
    return token.label or ("▢" if token.change is not None else "")


def _add_text(sheet: Sheet, c: Comparison) -> None:
    placed, top_change = _placed(c.tokens[:DRAWN_TOKENS]), scale_top(c)
    lines = 1 + max((each.line for each in placed), default=0)
    source = wrapped_lines("".join(_source(c)), 130) if c.source else []
    left_out = len(c.tokens) - DRAWN_TOKENS

    def draw(on: Any, top: float) -> None:
        for i, line in enumerate(source):
            put_text(on, 0, top + i * TEXT_LINE, line, TEXT_SIZE, color=QUIET, family=mono_fonts())
        top += len(source) * TEXT_LINE + (0.06 if source else 0.0)
        for each in placed:
            _draw_token(on, each, top, top_change)
        bottom = top + lines * TOKEN_LINE + 0.08
        if left_out > 0:
            put_text(
                on, SHEET_WIDTH, bottom, f"… {left_out} tokens more", SMALL_SIZE, color=FAINT, ha="right"
            )
        _draw_legend(on, bottom, c, top_change)

    sheet.add(len(source) * TEXT_LINE + 0.06 + lines * TOKEN_LINE + 0.26, draw)


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
            boxstyle="round,pad=0,rounding_size=0.035", facecolor=tint(direction(token), level), zorder=1,
        )  # fmt: skip
        on.add_patch(box)
    plain = token.change is None or (token.special and level <= 0.04)
    colour = FAINT if plain else ink_on(level)
    weight = "bold" if token.is_switched else "normal"
    put_text(on, each.x + width / 2, y + 0.125, _shown(token), TOKEN_SIZE, color=colour, ha="center",
           va="center", family=mono_fonts(), zorder=2, fontweight=weight)  # fmt: skip


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
            on.add_patch(rectangle(x + i * 0.055, top + 0.02, 0.056, 0.12, tint(name, (i + 1) / 12)))
        put_text(on, x + 0.74, top, meaning, SMALL_SIZE, color=QUIET)
        x += 0.9 + len(meaning) * 0.062
    unit = "nats" if predicted else "of its length"
    most = f"darkest: {top_change:.2g} {unit}" + (
        " · bold: another best guess · ▢: the next token" if predicted else ""
    )
    put_text(on, x, top, most, SMALL_SIZE, color=QUIET)


def _add_changes(sheet: Sheet, c: Comparison) -> None:
    """On the left the tokens that changed most, on the right numbers of the text and what is generated."""
    changes = [token for token in c.most_changed(DRAWN_CHANGES) if token.change and token.top_before]
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
            put_text(on, half, y, line)
            y += TEXT_LINE
        if labels:
            _draw_labels(on, half, y + 0.5 * TEXT_LINE, c)
            y += (1.0 + len(labels)) * TEXT_LINE
        if texts:
            y += 0.6 * TEXT_LINE
            put_text(on, half, y, texts_title(c), fontweight="bold")
            for i, (name, first, rest) in enumerate(texts):
                at = y + (i + 1.1) * TEXT_LINE
                put_text(on, half, at, name, SMALL_SIZE, color=FAINT)
                put_text(on, half + 0.55, at, first, SMALL_SIZE, color=FAINT, family=mono_fonts())
                put_text(
                    on, half + 0.55 + text_width(first, SMALL_SIZE), at, rest, SMALL_SIZE, family=mono_fonts()
                )

    height = max([*rows, right]) * TEXT_LINE
    if height:
        sheet.add(height, draw)


def _summary_lines(c: Comparison) -> Iterator[str]:
    for name, (before, after) in c.summary.items():
        yield f"{name}   {before:.3f} → {after:.3f}"
    if c.cosine is not None:
        yield f"cosine of both vectors   {c.cosine:.3f}"
    yield from wrapped_lines(change_sentence(c), 68)


def _text_lines(c: Comparison, cells: int) -> list[tuple[str, str, str]]:
    """Lines of both texts: the name, what they have in common, and what they have not."""
    if c.texts is None:
        return []
    found = []
    same = common_beginning(c.texts.before, c.texts.after)
    for name, text in (("before", c.texts.before), ("after", c.texts.after)):
        left = len(" ".join(text[:same].split()))
        for i, line in enumerate(wrapped_lines(text, cells)[:4]):
            common = max(0, min(len(line), left))
            found.append((name if i == 0 else "", line[:common], line[common:]))
            left -= len(line) + 1
    return found


def _draw_changes(on: Any, top: float, changes: Sequence[TokenChange]) -> None:
    own = any(token.before is not None for token in changes)
    places = {"nats": 0.4, "token": 0.55, "p": 1.95, "before": 2.9, "after": 4.25}
    put_text(on, 0, top, "Predictions that changed most", fontweight="bold")
    y = top + 1.1 * TEXT_LINE
    heads = ("nats", "token", "its probability" if own else "", "best guess before", "after")
    for (name, x), head in zip(places.items(), heads, strict=True):
        put_text(on, x, y, head, 7.5, color=QUIET, ha="right" if name == "nats" else "left")
    for i, token in enumerate(changes):
        at, weight = y + (i + 1) * TEXT_LINE, "bold" if token.is_switched else "normal"
        put_mono(on, places["nats"], at, small_number(token.change or 0.0), ha="right")
        put_mono(on, places["token"], at, shortened_to(token.label or "next", 15), fontweight="bold")
        if token.before is not None:
            put_mono(on, places["p"], at, f"{probability(token.before)} → {probability(token.after)}")
        guesses = ("before", token.top_before[0], "normal"), ("after", token.top_after[0], weight)
        for name, (word, share), own_weight in guesses:
            shown = f"{shortened_to(word, 12)} {probability(share)}"
            put_mono(on, places[name], at, shown, fontweight=own_weight)


def _draw_labels(on: Any, x: float, top: float, c: Comparison) -> None:
    """Labels with bars: the outline is before, the bar after."""
    for i, label in enumerate(c.labels[:8]):
        y = top + i * TEXT_LINE
        put_text(on, x, y, shortened_to(label.name, 18), TEXT_SIZE)
        if c.kind != "score":
            on.add_patch(rectangle(x + 1.5, y + 0.02, 1.6 * label.after, 0.12, tint("other", 0.7)))
            on.plot([x + 1.5 + 1.6 * label.before] * 2, [y, y + 0.16], color=INK, linewidth=1.2)
        put_text(on, x + 3.2, y, f"{label.before:.3f} → {label.after:.3f}", SMALL_SIZE, family=mono_fonts())
