"""Pictures: a matrix of weights and the words of its sides in, a PNG or SVG file out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, MissingError

CJK_FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "PingFang SC",
             "Microsoft YaHei", "SimHei", "Droid Sans Fallback", "AR PL UMing CN")  # fmt: skip


def heat_map(
    weights: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    path: str | Path,
    title: str = "",
) -> None:
    """Rows look at columns. In an SVG the words stay text, so that any browser has the letters for them."""
    path = Path(path)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"a picture is .png, .svg or .pdf; given {path.name}")
    figure, axes = _axes(0.42 * len(columns) + 2.2, 0.42 * len(rows) + 1.8)
    image = axes.imshow([list(row) for row in weights], cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if title:
        axes.set_title(title, fontsize=11, pad=12)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.03)
    bar.outline.set_visible(False)
    with warnings.catch_warnings():
        if path.suffix == ".svg":  # the words are written as text: the letters need not be here
            warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(path, dpi=150, bbox_inches="tight")


def chinese_font() -> str | None:
    """A font on this machine that has Chinese letters, if there is one."""
    from matplotlib import font_manager

    there = {font.name for font in font_manager.fontManager.ttflist}
    return next((name for name in CJK_FONTS if name in there), None)


def _axes(width: float, height: float) -> tuple[Any, Any]:
    """A figure of its own: no global state of the plotting library is read or changed."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingError("matplotlib", "a picture") from None
    font = chinese_font()
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["font.family"] = [name for name in (font, "DejaVu Sans") if name]
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, figure.subplots()
