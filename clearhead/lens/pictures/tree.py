"""The tree of a beam search: one column per step, pruned branches in grey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tree import Branch
from .canvas import ACCENT, BLUE, FAINT, INK, Picture, picture, short_label

STATUS_COLOURS = {"kept": BLUE, "finished": ACCENT, "pruned": FAINT}


def beam_tree(branches: Sequence[Branch], title: str = "") -> Picture:
    """Longer hypotheses are above shorter ones; the numbers are sums of log-probabilities."""
    rows, height = _rows(branches)
    steps = max(branch.step for branch in branches) + 1
    by_id = {branch.id: branch for branch in branches}

    def draw(figure: Any, axes: Any) -> None:
        for branch in branches:
            x, y = branch.step + 1, -rows[branch.id]
            parent = by_id.get(branch.parent)
            x0, y0 = (parent.step + 1, -rows[parent.id]) if parent else (0, 0)
            colour = STATUS_COLOURS[branch.fate]
            axes.plot([x0 + 0.28, x - 0.3], [y0, y], color=colour, linewidth=1.4, zorder=1,
                      alpha=0.45 if branch.fate == "pruned" else 0.9)  # fmt: skip
            ink = INK if branch.fate == "kept" else colour
            axes.text(x, y + 0.05, short_label(branch.token.label, 12), ha="center", va="bottom", fontsize=10,
                      color=ink, zorder=3)  # fmt: skip
            axes.text(x, y - 0.05, f"{branch.score:.2f}", ha="center", va="top", fontsize=6.5, color=ink)
        axes.text(0, 0, "start", ha="center", va="center", fontsize=9, color=FAINT)
        for fate, colour in STATUS_COLOURS.items():
            axes.plot([], [], color=colour, label=fate)
        axes.legend(loc="upper left", frameon=False, fontsize=8, ncols=3)
        axes.set_xlim(-0.4, steps + 0.6)
        axes.set_ylim(-height - 0.2, 1.4)
        axes.axis("off")
        axes.set_title(title, pad=8)

    return picture(1.05 * steps + 1.2, 0.42 * height + 1.2, draw)


def _rows(branches: Sequence[Branch]) -> tuple[dict[int, int], int]:
    """The row of every branch, and the number of rows.

    A branch and its best continuations form a run in one row. Runs are placed one after another in the first
    row that is free, the best first, then by length and score.
    """
    best: dict[int, Branch] = {}
    for branch in sorted(branches, key=lambda b: b.score):
        best[branch.parent] = branch
    known = {branch.id for branch in branches}
    heads = [b for b in branches if b.parent not in known or best[b.parent].id != b.id]
    runs = []
    for branch in heads:
        run = [branch]
        while run[-1].id in best:
            run.append(best[run[-1].id])
        runs.append(run)
    runs.sort(key=lambda run: (run[0].id != best.get(-1, run[0]).id, -len(run), -run[0].score))
    rows: dict[int, int] = {}
    taken: set[tuple[int, int]] = set()
    for run in runs:
        row = next(r for r in range(len(runs)) if not any((b.step, r) in taken for b in run))
        taken |= {(b.step, row) for b in run}
        rows |= {b.id: row for b in run}
    return rows, max(rows.values(), default=0) + 1
