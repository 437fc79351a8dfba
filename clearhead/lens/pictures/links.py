"""Lines between tokens: arcs from one token, two columns of tokens, the alignment of two texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .canvas import ACCENT, BLUE, FAINT, INK, Picture, picture, plain, short_label


def arcs(weights_K: Tensor, tokens: Sequence[str], query: int, title: str = "") -> Picture:
    """What one token attends to: arcs to the others, with the weight as line width."""
    from matplotlib.patches import FancyArrowPatch

    at = _spread(tokens)
    strongest = max(float(weights_K.max()), 1e-9)

    def draw(figure: Any, axes: Any) -> None:
        for k, weight in enumerate(weights_K.tolist()):
            share = weight / strongest
            if k == query or share < 0.03:
                continue
            bend = 0.45 if at[k] < at[query] else -0.45
            axes.add_patch(FancyArrowPatch(
                (at[query], 0.25), (at[k], 0.25), connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>",
                mutation_scale=9, color=BLUE, alpha=0.15 + 0.85 * share, linewidth=0.5 + 3 * share,
            ))  # fmt: skip
        best = [k for k in weights_K.argsort(descending=True).tolist() if k != query][:3]
        for k, token in enumerate(tokens):
            weight = float(weights_K[k])
            colour = ACCENT if k == query else INK if weight > 0.1 * strongest else FAINT
            axes.text(at[k], 0, short_label(token), ha="center", va="center", color=colour, fontsize=12)
            if k in best or k == query:
                axes.text(at[k], -0.32, f"{weight:.2f}", ha="center", va="center", color=colour, fontsize=8)
        axes.set_xlim(at[0] - 0.8, at[-1] + 0.8)
        axes.set_ylim(-0.55, 0.45 + 0.27 * max(abs(x - at[query]) for x in at))
        axes.set_aspect("equal")
        axes.axis("off")
        axes.set_title(title, pad=8)

    return picture(max(0.55 * (at[-1] - at[0]) + 1.5, 5), 3.2, draw)


def bipartite(weights_QK: Tensor, rows: Sequence[str], columns: Sequence[str], title: str = "") -> Picture:
    """Queries on the left, keys on the right; the width of a line is its weight."""

    def draw(figure: Any, axes: Any) -> None:
        strongest = max(float(weights_QK.max()), 1e-9)
        height = max(len(rows), len(columns))
        left, right = _column(len(rows), height), _column(len(columns), height)
        for q, row in enumerate(weights_QK.tolist()):
            for k, weight in enumerate(row):
                if weight > 0.04:
                    share = weight / strongest
                    axes.plot([0, 1], [left[q], right[k]], color=BLUE, alpha=0.1 + 0.9 * share,
                              linewidth=2.5 * share, solid_capstyle="round")  # fmt: skip
        for where, labels, x, side in ((left, rows, -0.03, "right"), (right, columns, 1.03, "left")):
            for y, label in zip(where, labels, strict=True):
                axes.text(x, y, short_label(label), ha=side, va="center", fontsize=10)
        axes.set_ylim(-height + 0.3, 0.7)
        axes.set_xlim(-0.05, 1.05)
        axes.axis("off")
        axes.set_title(title, pad=8)

    return picture(4.6, 0.3 * max(len(rows), len(columns)) + 0.8, draw)


def aligned(weights_QK: Tensor, target: Sequence[str], source: Sequence[str], title: str = "") -> Picture:
    """Source and target connected by lines for large cross-attention weights, and the matrix below."""

    def draw(figure: Any, axes: Any) -> None:
        top, grid = axes
        above, below = _spread(source), _spread(target)
        span = max(above[-1], below[-1], 1.0)
        above, below = ([x * span / max(line[-1], 1e-9) for x in line] for line in (above, below))
        for q, row in enumerate(weights_QK.tolist()):
            for k, weight in enumerate(row):
                if weight >= 0.2:
                    top.plot([above[k], below[q]], [0.82, 0.18], color=BLUE, alpha=min(1, 0.15 + weight),
                             linewidth=3.5 * weight, solid_capstyle="round")  # fmt: skip
        for x, label in zip(above, source, strict=True):
            top.text(x, 1, label, ha="center", va="center", fontsize=12)
        for x, label in zip(below, target, strict=True):
            top.text(x, 0, label, ha="center", va="center", fontsize=12)
        top.set_xlim(-0.6, span + 0.6)
        top.set_ylim(-0.15, 1.15)
        top.axis("off")
        top.set_title(title, pad=12)
        grid.imshow(weights_QK.float().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        grid.set_xticks(range(len(source)), source, rotation=45, ha="right", rotation_mode="anchor")
        grid.set_yticks(range(len(target)), target)
        for q, row in enumerate(weights_QK.tolist()):
            k = max(range(len(row)), key=row.__getitem__)
            grid.text(k, q, f"{row[k]:.2f}", ha="center", va="center", fontsize=7,
                      color="white" if row[k] > 0.5 else INK)  # fmt: skip
        plain(grid)

    width = max(0.62 * max(_spread(source)[-1], _spread(target)[-1]) + 1.5, 6)
    height = 2.0 + 0.3 * len(target) + 0.8
    return picture(
        width,
        height,
        draw,
        2,
        1,
        gridspec_kw={"height_ratios": [2.0, 0.3 * len(target) + 0.3], "hspace": 0.12},
    )


def _spread(tokens: Sequence[str]) -> list[float]:
    """Positions on a line: each token gets the width of its text; Chinese characters count double."""
    from rich.cells import cell_len

    at, edge = [], 0.0
    for token in tokens:
        half = max(0.13 * cell_len(short_label(token)), 0.3)
        at.append(edge + half)
        edge += 2 * half + 0.25
    return [x - at[0] for x in at]


def _column(count: int, height: int) -> list[float]:
    gap = (height - 1) / max(count - 1, 1) if count > 1 else 0
    return [-i * gap for i in range(count)]
