"""Bars: named figures in, one panel for each task, the best on top; a note stands at the end of each bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .canvas import ACCENT, BLUE, INK, Picture, light, picture

Noted = Mapping[str, tuple[float, str]]  # a figure and the note at its end


def bars(panels: Mapping[str, Noted], base: str, titles: Mapping[str, str]) -> Picture:
    """Each panel in the order it is given; the bar called `base` has another colour, to be compared with."""
    most = max(len(noted) for noted in panels.values())

    def draw(figure: Any, axes: Any) -> None:
        for at, (name, noted) in zip(axes[0], panels.items(), strict=True):
            words = list(noted)
            figures = [figure for figure, _ in noted.values()]
            at.barh(words, figures, color=[ACCENT if word == base else BLUE for word in words], height=0.65)
            at.invert_yaxis()
            for row, (value, note) in enumerate(noted.values()):
                at.annotate(
                    note, (value, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7.5,
                    color=INK,
                )  # fmt: skip
            at.set_title(f"{name}: {titles[name]}")
            at.margins(x=0.3)
            at.tick_params(axis="y", length=0, labelsize=8)
            light(at)
            at.grid(visible=False, axis="y")
        figure.subplots_adjust(wspace=0.7)

    return picture(4.6 * len(panels), 1.2 + 0.32 * most, draw, 1, len(panels), squeeze=False)
