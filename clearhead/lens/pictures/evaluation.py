"""Pictures of evaluations: a confusion matrix, and the examples with the largest error as a list.

The list is set in a plain text column; widths are estimated from the script, a Chinese character being twice
as wide as a letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unicodedata import east_asian_width

from .canvas import ACCENT, BLUE, FAINT, INK, Picture, picture, plain, short_label

MAX_CLASSES = 25  # of the matrix; of more, those with the most errors
MAX_BESIDE = 6  # classes of a matrix that has the list beside it, not below
LIST_WIDTH = 7.2  # inches, as all that follow
HEADER = 0.9  # title and scores
MATRIX_TITLE = 3.6
EXAMPLE_GAP = 0.14  # between examples
LETTER = 0.0735  # an average letter at 9 points; bold text is a little wider
LINE_HEIGHT = 0.19  # from line to line
GREEN = "#15803d"


@dataclass(frozen=True)
class WorstRow:
    """One example: the text, the reference, the prediction, and the error."""

    place: str
    text: str
    reference: str
    prediction: str
    error: float


@dataclass(frozen=True)
class EvaluationView:
    """What a picture or page of an evaluation shows."""

    title: str
    scores: Mapping[str, float]
    measure: str  # what the error of a row is
    names: Sequence[str] = ()
    counts: Sequence[Sequence[int]] | None = None  # rows are references, columns predictions
    rows: Sequence[WorstRow] = field(default=())

    def shown_classes(self) -> list[int]:
        """The indices of the classes that occur; of too many, those with the most errors."""
        if self.counts is None:
            return []
        columns = [list(column) for column in zip(*self.counts, strict=True)]
        seen = [i for i in range(len(self.names)) if any(self.counts[i]) or any(columns[i])]
        errors = {i: sum(self.counts[i]) + sum(columns[i]) - 2 * self.counts[i][i] for i in seen}
        return sorted(sorted(seen, key=lambda i: (-errors[i], i))[:MAX_CLASSES])


def draw_evaluation(view: EvaluationView) -> Picture:
    """The matrix on the left, the list on the right; with many classes the list is below."""
    classes = view.shown_classes()
    beside = 0 < len(classes) <= MAX_BESIDE
    cell = 1.05 if len(classes) <= 3 else 0.8 if beside else 0.62
    labels = max((_width(f"{short_label(view.names[i])}  (0,000)") for i in classes), default=0)
    side = cell * len(classes)
    below = 0.7 + (0.4 * labels if len(classes) > 3 else 0)  # the names of the columns, at an angle
    matrix = (max(labels + 0.4 + side, MATRIX_TITLE), 0.35 + side + below) if classes else (0.0, 0.0)
    blocks = [_lines_of(row, view.measure) for row in view.rows]
    listed = 0.35 + sum(len(block) * LINE_HEIGHT + EXAMPLE_GAP for block in blocks) if blocks else 0.0
    left, top = (matrix[0] + 0.5, HEADER) if beside else (0.0, HEADER + matrix[1] + (0.3 if classes else 0))
    width = max(left + LIST_WIDTH if blocks else 0, matrix[0], 6.0)
    height = max(HEADER + matrix[1], top + listed)

    def draw(figure: Any, axes: Any) -> None:
        axes.remove()
        page = _inches(figure, width, height)
        page.text(0, 0.1, view.title, fontsize=12, fontweight="bold", va="top")
        page.text(0, 0.42, _score_line(view.scores), fontsize=9.5, color=BLUE, va="top")
        if classes:
            heading = "Confusion matrix: count and share of the row"
            page.text(0, HEADER, heading, fontsize=9.5, fontweight="bold", va="top")
            bottom = height - HEADER - 0.35 - side
            box = ((labels + 0.4) / width, bottom / height, side / width, side / height)
            _draw_matrix(figure.add_axes(box), view, classes)
        if blocks:
            _draw_list(page, blocks, view.measure, left, top)

    return picture(width, height, draw)


def _inches(figure: Any, width: float, height: float) -> Any:
    """Axes over the whole figure whose units are inches, y downwards."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    return axes


def _score_line(scores: Mapping[str, float]) -> str:
    return "    ".join(f"{name} {value:.4g}" for name, value in scores.items())


def _draw_matrix(axes: Any, view: EvaluationView, classes: Sequence[int]) -> None:
    """Counts, and their share of the row; colours follow the share, so that rare classes are seen, too."""
    assert view.counts is not None
    totals = {i: sum(view.counts[i]) for i in classes}
    shares = [[view.counts[i][j] / max(totals[i], 1) for j in classes] for i in classes]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, i in enumerate(classes):
        for x, j in enumerate(classes):
            if not view.counts[i][j]:
                continue
            colour = "white" if shares[y][x] > 0.45 else ACCENT if i != j and shares[y][x] < 0.3 else INK
            axes.text(
                x, y - 0.1, f"{view.counts[i][j]:,}", ha="center", va="center", fontsize=9, color=colour
            )
            share = f"{100 * shares[y][x]:.0f} %" if shares[y][x] >= 0.005 else "<1 %"
            axes.text(x, y + 0.2, share, ha="center", va="center", fontsize=7, color=colour)
    ticks = list(range(len(classes)))
    names = [short_label(view.names[i]) for i in classes]
    axes.set_xticks(ticks, names, fontsize=9, rotation=45 if len(classes) > 3 else 0,
                    **({"ha": "right", "rotation_mode": "anchor"} if len(classes) > 3 else {}))  # fmt: skip
    axes.set_yticks(ticks, [f"{n}  ({totals[i]:,})" for n, i in zip(names, classes, strict=True)], fontsize=9)
    axes.set_xlabel("predicted", labelpad=8)
    axes.set_ylabel("reference", labelpad=8)
    left_out = len(view.names) - len(classes)
    if left_out:
        note = f"{left_out} classes without errors or rows are left out"
        place = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
        axes.text(1, 1.01, note, fontsize=7, color=FAINT, **place)
    plain(axes)


TextLine = list[tuple[str, str, str]]  # pieces of a line: text, colour, weight


def _lines_of(row: WorstRow, measure: str) -> list[TextLine]:
    """The example in lines of the list: the text, the reference and the prediction."""
    lines: list[TextLine] = [[(line, INK, "normal")] for line in _wrapped(row.text, 3)]
    sides = [("reference ", row.reference, GREEN), ("predicted ", row.prediction, ACCENT)]
    sides = [side for side in sides if side[1]]
    if _width(row.reference + row.prediction, bold=True) < LIST_WIDTH - 2.6:  # both on one line
        lines.append([])
        for word, text, colour in sides:
            lines[-1] += [(word, FAINT, "normal"), (f"{text}    ", colour, "bold")]
    else:
        for word, text, colour in sides:
            first, *more = _wrapped(text, 2, LIST_WIDTH - 1.2)
            lines.append([(word, FAINT, "normal"), (first, colour, "normal")])
            lines += [[(" " * len(word), FAINT, "normal"), (line, colour, "normal")] for line in more]
    error = f"{measure} {row.error:.3g}" + (f" · {row.place}" if row.place else "")
    if not lines[-1] or len(lines[-1]) < 4 or sum(_width(text) for text, *_ in lines[-1]) > LIST_WIDTH - 2.5:
        lines.append([])
    lines[-1].append((error, FAINT, "normal"))
    return [line for line in lines if line]


def _draw_list(
    page: Any, blocks: Sequence[Sequence[TextLine]], measure: str, left: float, top: float
) -> None:
    heading = f"The {len(blocks)} worst examples, by {measure}"
    page.text(left, top, heading, fontsize=9.5, fontweight="bold", va="top")
    at = top + 0.35
    for number, block in enumerate(blocks, 1):
        page.text(left + 0.18, at, str(number), fontsize=8, color=FAINT, va="top", ha="right")
        for line in block:
            x = left + 0.3
            for text, colour, weight in line:
                page.text(x, at, text, fontsize=9, color=colour, fontweight=weight, va="top")
                x += _width(text, bold=weight == "bold")
            at += LINE_HEIGHT
        at += EXAMPLE_GAP


def _wrapped(text: str, most: int, width: float = LIST_WIDTH - 0.3) -> list[str]:
    """At most `most` lines; between words, or between Chinese characters."""
    lines, line = [], ""
    for word in _words(" ".join(text.split())):
        if line and _width(line + word) > width:
            lines.append(line.strip())
            line = ""
        line += word
        while _width(line) > width:  # a word longer than a line
            cut = max(int(len(line) * width / _width(line)), 1)
            lines.append(line[:cut])
            line = line[cut:]
    lines.append(line.strip())
    lines = [line for line in lines if line] or [""]
    return lines if len(lines) <= most else [*lines[: most - 1], lines[most - 1][:-1] + "…"]


def _words(text: str) -> list[str]:
    words, word = [], ""
    for letter in text:
        word += letter
        if letter == " " or _is_wide(letter):
            words.append(word)
            word = ""
    return [*words, word]


def _is_wide(letter: str) -> bool:
    return east_asian_width(letter) in "WF"


def _width(text: str, *, bold: bool = False) -> float:
    """Inches, estimated."""
    letters = sum(1.7 if _is_wide(letter) else 1.0 for letter in text)
    return letters * LETTER * (1.12 if bold else 1.0)
