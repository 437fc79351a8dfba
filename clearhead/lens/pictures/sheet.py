"""Sheets: pictures that are set like a page, in inches, from top to bottom, of words, boxes and bars.

A block says its height and draws itself from its own top. Tokens are set in a fixed-width font, so that boxes
behind them fit wherever the picture is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unicodedata import east_asian_width

from .canvas import INK, Picture, chinese_font, picture

SHEET_WIDTH = 11.0  # inches, as all that follow
BLOCK_GAP = 0.32  # between blocks
TEXT_LINE = 0.2  # from line to line of small text
TEXT_SIZE, SMALL_SIZE = 9.0, 8.0  # points
FIXED_WIDTH = 0.602 / 72  # inches of a character of the fixed-width font, per point
QUIET = "#5b6773"  # the colour of what explains
TINTS: dict[str, tuple[int, int, int]] = {
    "more": (38, 105, 176), "less": (205, 92, 20), "other": (111, 66, 178),
}  # fmt: skip


@dataclass
class Sheet:
    """Blocks from top to bottom; each draws itself on axes in inches, from its own top."""

    blocks: list[tuple[float, Callable[[Any, float], None]]] = field(default_factory=list)

    def add(self, height: float, draw: Callable[[Any, float], None], gap: float = BLOCK_GAP) -> None:
        self.blocks.append((height + gap, draw))

    def picture(self) -> Picture:
        return picture(SHEET_WIDTH, self.height, self.draw)

    @property
    def height(self) -> float:
        return sum(height for height, _ in self.blocks)

    def draw(self, figure: Any, axes: Any) -> None:
        axes.remove()
        page = figure.add_axes((0, 0, 1, 1))
        page.set_xlim(0, SHEET_WIDTH)
        page.set_ylim(self.height, 0)
        page.axis("off")
        top = 0.0
        for height, draw in self.blocks:
            draw(page, top)
            top += height


def tint(name: str, level: float) -> str:
    mixed = [round(255 + (x - 255) * level) for x in TINTS[name]]
    return "#" + "".join(f"{x:02x}" for x in mixed)


def ink_on(level: float) -> str:
    return "white" if level > 0.72 else INK


def put_text(on: Any, x: float, y: float, text: str, size: float = TEXT_SIZE, **style: Any) -> None:
    on.text(x, y, text, fontsize=size, **{"va": "top", "color": INK} | style)


def mono_fonts() -> list[str]:
    return [name for name in ("DejaVu Sans Mono", chinese_font(), "monospace") if name]


def text_cells(text: str) -> int:
    """The width in characters of the fixed-width font."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def text_width(text: str, size: float) -> float:
    """Inches of a text in the fixed-width font, and of Chinese characters in theirs."""
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    return (len(text) - wide) * FIXED_WIDTH * size + wide * 1.03 * size / 72


def put_mono(on: Any, x: float, y: float, text: str, **style: Any) -> None:
    put_text(on, x, y, text, SMALL_SIZE, family=mono_fonts(), **style)


def rectangle(x: float, y: float, width: float, height: float, colour: str, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=colour, linewidth=0, **style)


def shortened_to(text: str, cells: int) -> str:
    while text_cells(text) > cells:
        text = text[: -2 if text.endswith("…") else -1] + "…"
    return text


def wrapped_lines(text: str, cells: int) -> list[str]:
    """Lines of at most this many characters, broken between words, or anywhere in Chinese text."""
    lines, line = [], ""
    for word in _words(" ".join(text.split())):
        if line and text_cells((line + word).rstrip()) > cells:
            lines.append(line.rstrip())
            line = ""
        line += word
        while text_cells(line.rstrip()) > cells:
            cut = next(i for i in range(len(line), 0, -1) if text_cells(line[:i]) <= cells)
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
