"""The canvas of all pictures: sizes and axes in, a figure with fonts for every script out, and its file.

No global state of the plotting library is read or changed. In an SVG words stay text; in a PNG or PDF they
need a font of this machine.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, MissingError, SaveError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CJK_FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "PingFang SC",
             "Microsoft YaHei", "SimHei", "Noto Serif CJK SC", "Noto Sans CJK JP", "Droid Sans Fallback",
             "AR PL UMing CN")  # fmt: skip
INSTALL = "install one (Debian, Ubuntu: apt install fonts-noto-cjk), or save as .svg or .html"
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
INK, FAINT, ACCENT, BLUE = "#1f2933", "#9aa5b1", "#c2410c", "#2563a8"


class Picture:
    """A figure that can be saved, and that shows itself in a notebook."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        if path.suffix.lower() not in PICTURE_SUFFIXES:
            raise InputError(f"a picture is .png, .svg or .pdf; given {path.name}")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to save {path.name} in")
        try:
            path.write_bytes(self.drawn(path.suffix.lower()[1:]))
        except OSError as error:
            raise SaveError(f"{path} cannot be written: {error.strerror}") from None
        return path

    def drawn(self, kind: str) -> bytes:
        """The bytes of a png, svg or pdf; the same picture gives the same bytes."""
        page, stamp = io.BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        with settings(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.figure.savefig(
                page, format=kind, dpi=150, bbox_inches="tight", pad_inches=0.15, metadata=stamp.get(kind, {})
            )
        if kind != "svg" and any("missing from" in str(w.message) for w in caught):
            self._refuse_boxes(caught)
        return page.getvalue()

    def _refuse_boxes(self, caught: Sequence[warnings.WarningMessage]) -> None:
        """A letter without a font is drawn as an empty box: rather no picture than that, where it matters."""
        missing = [str(w.message) for w in caught if "missing from" in str(w.message)]
        if chinese_font() is None and any("CJK" in line for line in missing):
            raise InputError(f"no font of this machine has the Chinese letters of this picture; {INSTALL}")

    def _repr_png_(self) -> bytes:
        return self.drawn("png")


def picture(
    width: float, height: float, draw: Callable[..., None], rows: int = 1, columns: int = 1, **layout: Any
) -> Picture:
    """A picture of `rows` x `columns` axes, handed to `draw(figure, axes)`."""
    _need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with settings():
        figure = Figure(figsize=(width, height), facecolor="white")
        FigureCanvasAgg(figure)
        draw(figure, figure.subplots(rows, columns, **layout))
    return Picture(figure)


@contextmanager
def settings() -> Iterator[None]:
    import matplotlib

    fonts = [name for name in ("DejaVu Sans", chinese_font()) if name]
    with matplotlib.rc_context({
        "svg.fonttype": "none", "svg.hashsalt": "clearhead", "font.family": fonts, "text.color": INK,
        "axes.edgecolor": FAINT, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "text.parse_math": False, "font.size": 10, "axes.titlesize": 11,
    }):  # fmt: skip
        yield


@cache
def chinese_font() -> str | None:
    """A font on this machine that has Chinese letters, if there is one."""
    _need_matplotlib()
    from matplotlib import font_manager

    manager = font_manager.fontManager
    there = {font.name for font in manager.ttflist}
    if there.isdisjoint(CJK_FONTS):
        # Its list is a cache, from before somebody installed a font on our advice: look at the disk again.
        known = {font.fname for font in manager.ttflist}
        for path in font_manager.findSystemFonts():
            if path not in known:
                with suppress(OSError, RuntimeError):  # a file that is no font
                    manager.addfont(path)
        there = {font.name for font in manager.ttflist}
    return next((name for name in CJK_FONTS if name in there), None)


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingError("matplotlib", "a picture") from None


def plain(axes: Any) -> None:
    """Axes without a frame and without tick marks."""
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def powers(axes: Any) -> None:
    """A logarithmic scale with plain numbers: words are never read as formulas here, nor are these."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")


def light(axes: Any) -> None:
    """A quiet grid, and no box around it."""
    axes.grid(alpha=0.25, linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def words(axes: Any, rows: Sequence[str], columns: Sequence[str], size: float = 9) -> None:
    """Words at both sides of a matrix; with many of them, only as many as can be read."""
    for labels, ticks, turned in ((columns, axes.set_xticks, True), (rows, axes.set_yticks, False)):
        every = max(1, -(-len(labels) // 64))
        at = range(0, len(labels), every)
        style = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if turned else {}
        ticks(list(at), [short_label(labels[i]) for i in at], fontsize=size, **style)
    plain(axes)


def short_label(label: str, letters: int = 16) -> str:
    return label if len(label) <= letters else label[: letters - 1] + "…"
