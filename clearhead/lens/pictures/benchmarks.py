"""Pictures of benchmarks: series over lengths on logarithmic scales, and bars with notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .canvas import ACCENT, BLUE, INK, Picture, light, picture

Series = Mapping[str, Sequence[tuple[float, float]]]
AnnotatedBars = Mapping[str, tuple[float, str]]  # the value of each bar, and the note at its end
# Colours that most colour-blind readers can tell apart (Okabe and Ito); further series are dashed.
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")


def growth(panels: Mapping[str, Series], base: str, title: str = "", across: str = "tokens") -> Picture:
    """One panel for each quantity; the series named `base` is the reference, drawn in black."""
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    others = [name for name in names if name != base]

    def draw(figure: Any, axes: Any) -> None:
        from matplotlib import ticker

        for at, (what, series) in zip(axes[0], panels.items(), strict=True):
            for name, points in series.items():
                at.plot(*zip(*points, strict=True), **_style(name, base, others), label=name)
            at.set_xscale("log", base=2)
            at.set_yscale("log")
            at.set_xlabel(across)
            at.set_title(what)
            lengths = sorted({x for points in series.values() for x, _ in points})
            at.set_xticks(lengths, [f"{x:g}" if x < 1024 else f"{x / 1024:g}k" for x in lengths])
            at.minorticks_off()
            at.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=20))
            at.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,g}"))
            light(at)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="center left", bbox_to_anchor=(0.91, 0.5), frameon=False, fontsize=8
        )
        figure.suptitle(title, y=1.0)
        figure.subplots_adjust(wspace=0.28)

    return picture(4.6 * len(panels), 4.2, draw, 1, len(panels), squeeze=False)


def _style(name: str, base: str, others: list[str]) -> dict[str, Any]:
    if name == base:
        return {"color": INK, "linewidth": 2.4, "marker": "o", "markersize": 3, "zorder": 5}
    at = others.index(name)
    dash = ("-", "--", ":")[at // len(LINE_COLOURS) % 3]
    return {"color": LINE_COLOURS[at % len(LINE_COLOURS)], "linestyle": dash, "marker": "o", "markersize": 3}


def bars(panels: Mapping[str, AnnotatedBars], base: str, titles: Mapping[str, str]) -> Picture:
    """One panel per task; the bar named `base` is the reference, in another colour."""
    most = max(len(annotated) for annotated in panels.values())

    def draw(figure: Any, axes: Any) -> None:
        for at, (task, annotated) in zip(axes[0], panels.items(), strict=True):
            names = list(annotated)
            values = [value for value, _ in annotated.values()]
            at.barh(names, values, color=[ACCENT if name == base else BLUE for name in names], height=0.65)
            at.invert_yaxis()
            for row, (value, note) in enumerate(annotated.values()):
                at.annotate(
                    note, (value, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7.5,
                    color=INK,
                )  # fmt: skip
            at.set_title(f"{task}: {titles[task]}")
            at.margins(x=0.3)
            at.tick_params(axis="y", length=0, labelsize=8)
            light(at)
            at.grid(visible=False, axis="y")
        figure.subplots_adjust(wspace=0.7)

    return picture(4.6 * len(panels), 1.2 + 0.32 * most, draw, 1, len(panels), squeeze=False)
