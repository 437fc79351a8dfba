"""Matrices: heat maps, a grid of all heads, one number per head, and the logit lens as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..logit_lens import LogitLens
from .canvas import INK, Picture, picture, plain, short_label, token_ticks


def heat_map(
    weights_QK: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    colours: str = "Blues",
    top: float | None = 1.0,
    label: str = "weight",
) -> Picture:
    """A heat map of attention weights: rows are queries, columns are keys."""

    def draw(figure: Any, axes: Any) -> None:
        image = _matrix(axes, weights_QK, rows, columns, colours, top)
        axes.set_title(title, pad=12)
        bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.03)
        bar.outline.set_visible(False)
        bar.set_label(label, fontsize=8)

    cell = _cell(max(len(rows), len(columns)))
    return picture(cell * len(columns) + 2.4, cell * len(rows) + 1.8, draw)


def side_by_side(
    one_QK: Tensor, two_QK: Tensor, rows: Sequence[str], columns: Sequence[str], titles: tuple[str, str]
) -> Picture:
    """Two heads, or one head before and after a change, over the same tokens."""

    def draw(figure: Any, axes: Any) -> None:
        for at, weights, title in zip(axes, (one_QK, two_QK), titles, strict=True):
            _matrix(at, weights, rows, columns, "Blues", 1.0)
            at.set_title(title, pad=10)
        figure.subplots_adjust(wspace=0.45)

    cell = _cell(max(len(rows), len(columns)))
    return picture(2 * (cell * len(columns) + 2.0), cell * len(rows) + 1.8, draw, 1, 2)


def head_grid(weights_LHQK: Tensor, title: str = "", marks: Sequence[Sequence[str]] = ()) -> Picture:
    """Every head of every layer as a thumbnail; `marks` are captions, such as the roles of the heads."""
    depth, heads = weights_LHQK.shape[:2]

    def draw(figure: Any, axes: Any) -> None:
        for layer in range(depth):
            for head in range(heads):
                at = axes[layer][head]
                at.imshow(
                    weights_LHQK[layer, head].sqrt().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto"
                )
                at.set_xticks([])
                at.set_yticks([])
                for spine in at.spines.values():
                    spine.set_linewidth(0.4)
                if marks and marks[layer][head]:
                    at.set_xlabel(marks[layer][head], fontsize=6, labelpad=1.5)
                if layer == 0:
                    at.set_title(f"{head}", fontsize=7, pad=2)
                if head == 0:
                    at.set_ylabel(f"layer {layer}", fontsize=7, rotation=0, ha="right", va="center")
        figure.suptitle(title, fontsize=11)
        figure.subplots_adjust(
            wspace=0.12, hspace=0.34 if marks else 0.12, top=1 - 0.75 / (0.8 * depth + 0.9)
        )

    return picture(0.75 * heads + 0.8, 0.8 * depth + 0.9, draw, depth, heads, squeeze=False)


def table_of_heads(values_LH: Tensor, title: str, label: str, colours: str = "Blues") -> Picture:
    """One number per head: entropy, importance, a score."""
    depth, heads = values_LH.shape

    def draw(figure: Any, axes: Any) -> None:
        image = axes.imshow(values_LH.numpy(), cmap=colours, aspect="equal")
        axes.set_xticks(range(heads), [str(i) for i in range(heads)], fontsize=8)
        axes.set_yticks(range(depth), [str(i) for i in range(depth)], fontsize=8)
        axes.set_xlabel("head")
        axes.set_ylabel("layer")
        plain(axes)
        axes.set_title(title, pad=10)
        bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.03)
        bar.outline.set_visible(False)
        bar.set_label(label, fontsize=8)

    return picture(max(0.42 * heads + 2.2, 5.2), 0.42 * depth + 1.4, draw)


def logit_lens_table(
    lens: LogitLens, tokens: Sequence[str], title: str = "", answers: Sequence[str] = ()
) -> Picture:
    """The most likely token after each layer, darker with higher probability; `answers` are shown on top."""
    layers, count = lens.ids.shape[:2]

    def draw(figure: Any, axes: Any) -> None:
        probabilities = lens.probabilities[:, :, 0].flip(0).numpy()
        axes.imshow(probabilities, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for i in range(layers):
            for t in range(count):
                value, label = probabilities[i][t], lens.labels[layers - 1 - i][t][0]
                axes.text(t, i, short_label(label, 10), ha="center", va="center", fontsize=8,
                          color="white" if value > 0.55 else INK)  # fmt: skip
        names = ["embedding", *(f"layer {i}" for i in range(layers - 1))]
        axes.set_yticks(range(layers), names[::-1], fontsize=8)
        axes.set_xticks(range(count), [short_label(token) for token in tokens], fontsize=9)
        axes.set_xlabel("prediction after this token")
        if answers:
            top = axes.secondary_xaxis("top")
            top.set_xticks(range(count), [short_label(answer) for answer in answers], fontsize=9)
            top.tick_params(length=0)
            top.spines["top"].set_visible(False)
        plain(axes)
        axes.set_title(title, pad=14)

    return picture(max(0.72 * count + 1.5, 4), 0.34 * layers + 1.3, draw)


def _matrix(
    axes: Any, weights: Tensor, rows: Sequence[str], columns: Sequence[str], colours: str, top: float | None
) -> Any:
    low = 0.0 if top is not None else None
    image = axes.imshow(weights.float().numpy(), cmap=colours, vmin=low, vmax=top, aspect="equal")
    token_ticks(axes, rows, columns, 9 if max(len(rows), len(columns)) <= 40 else 6)
    return image


def _cell(count: int) -> float:
    """Inches per token: readable labels for short texts, a limited total size for long ones."""
    return 0.36 if count <= 24 else max(9.0 / count, 0.012)
