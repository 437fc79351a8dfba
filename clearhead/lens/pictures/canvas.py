"""The base of all pictures: a matplotlib figure with shared style and fonts, and how it is saved.

Global state of matplotlib is neither read nor changed. In an SVG file labels stay text; for PNG and PDF this
machine needs fonts for their scripts.
"""

from __future__ import annotations

import io
import logging
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
CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10, 13)}
CONTROL_PICTURES |= {0x7F: 0x2421, 0xFFFE: 0xFFFD, 0xFFFF: 0xFFFD} | dict.fromkeys(
    range(0xD800, 0xE000), 0xFFFD
)
INK, FAINT, ACCENT, BLUE = "#1f2933", "#9aa5b1", "#c2410c", "#2563a8"


class Picture:
    """A figure that can be saved and is displayed in notebooks."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        if path.suffix.lower() not in PICTURE_SUFFIXES:
            raise InputError(f"a picture can be saved as .png, .svg or .pdf; given {path.name}")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to save {path.name} in")
        try:
            path.write_bytes(self.render(path.suffix.lower()[1:]))
        except OSError as error:
            raise SaveError(f"{path} cannot be written: {error.strerror}") from None
        return path

    def render(self, kind: str) -> bytes:
        """The bytes of a png, svg or pdf. Without dates, equal pictures give equal bytes."""
        self._show_control_characters()
        buffer, metadata = io.BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        with settings(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.figure.savefig(
                buffer,
                format=kind,
                dpi=150,
                bbox_inches="tight",
                pad_inches=0.15,
                metadata=metadata.get(kind, {}),
            )
        # Characters without a font would be empty boxes; for Chinese that would be the whole label.
        missing = [str(w.message) for w in caught if "missing from" in str(w.message)]
        if kind != "svg" and any("CJK" in line for line in missing) and chinese_font() is None:
            raise InputError(
                f"this machine has no font with the Chinese characters of this picture; {INSTALL}"
            )
        return buffer.getvalue()

    def _show_control_characters(self) -> None:
        """A token may be any byte, and XML has no place for most control characters: ␛ stands for escape."""
        from matplotlib.text import Text

        for label in self.figure.findobj(Text):
            assert isinstance(label, Text)
            text = label.get_text()
            if not text.isprintable():
                label.set_text(text.translate(CONTROL_PICTURES))

    def _repr_png_(self) -> bytes:
        return self.render("png")


def picture(
    width: float, height: float, draw: Callable[..., None], rows: int = 1, columns: int = 1, **layout: Any
) -> Picture:
    """A picture with `rows` x `columns` axes, filled in by `draw(figure, axes)`."""
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
    """The style of all pictures, for the duration of a `with` block."""
    import matplotlib

    fonts = [name for name in ("DejaVu Sans", chinese_font()) if name]
    with _quiet_about_weights(), matplotlib.rc_context({
        "svg.fonttype": "none", "svg.hashsalt": "clearhead", "font.family": fonts, "text.color": INK,
        "axes.edgecolor": FAINT, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "text.parse_math": False, "font.size": 10, "axes.titlesize": 11,
    }):  # fmt: skip
        yield


@contextmanager
def _quiet_about_weights() -> Iterator[None]:
    """A Chinese font without a bold weight is taken as it is, without a warning for every word."""
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@cache
def chinese_font() -> str | None:
    """An installed font with Chinese characters, if there is one."""
    _need_matplotlib()
    from matplotlib import font_manager

    manager = font_manager.fontManager
    names = {font.name for font in manager.ttflist}
    if names.isdisjoint(CJK_FONTS):
        # matplotlib caches its list of fonts; a font installed since then is only found on disk.
        known = {font.fname for font in manager.ttflist}
        for path in font_manager.findSystemFonts():
            if path not in known:
                with suppress(OSError, RuntimeError):  # not a valid font file
                    manager.addfont(path)
        names = {font.name for font in manager.ttflist}
    return next((name for name in CJK_FONTS if name in names), None)


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
    """A logarithmic y axis with plain numbers; math text is disabled in `settings`."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")


def light(axes: Any) -> None:
    """A light grid, without the top and right borders."""
    axes.grid(alpha=0.25, linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def token_ticks(axes: Any, rows: Sequence[str], columns: Sequence[str], size: float = 9) -> None:
    """Label the rows and columns of a matrix with tokens; at most 64 labels per axis."""
    for labels, ticks, rotate in ((columns, axes.set_xticks, True), (rows, axes.set_yticks, False)):
        every = max(1, -(-len(labels) // 64))
        at = range(0, len(labels), every)
        style = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if rotate else {}
        ticks(list(at), [short_label(labels[i]) for i in at], fontsize=size, **style)
    plain(axes)


def short_label(label: str, letters: int = 16) -> str:
    return label if len(label) <= letters else label[: letters - 1] + "…"
