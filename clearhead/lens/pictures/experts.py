"""Mixture of experts: who went where, and how many to each.

Shape suffixes: L layers with experts, T tokens, E experts.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..routing import chosen_experts, expert_load
from .canvas import FAINT, INK, Picture, picture, plain, token_ticks

BANDS = 60  # pixels of a cell from top to bottom, shared by the experts of a token according to their weights
HUE_STEP = 0.618034  # a turn of the colour wheel by it keeps neighbours apart, however many follow
NO_EXPERT = (1.0, 1.0, 1.0)  # a token that no expert took


def expert_map(routing_LTE: Tensor, layers: Sequence[int], tokens: Sequence[str], title: str = "") -> Picture:
    """Left: the experts of each token, in the colours of the experts; right: the load of each expert."""
    depth, count, experts = routing_LTE.shape
    chosen = int((routing_LTE != 0).sum(-1).max())
    wide, high = _cell(count, 11.0, 0.56), _cell(depth, 7.0, min(max(0.36 * chosen, 0.5), 1.2))
    load_wide = _cell(experts, 5.0, 0.46)
    left, right = max(wide * count, 1.2), max(load_wide * experts, 1.6)

    def draw(figure: Any, axes: Any) -> None:
        choices, load = axes
        _draw_choices(choices, routing_LTE, (wide, high))
        token_ticks(choices, [f"layer {i}" for i in layers], tokens, 9 if count <= 40 else 6)
        choices.set_title("experts of each token", fontsize=10, pad=8)
        _draw_load(load, expert_load(routing_LTE), (load_wide, high))
        load.set_title("load", fontsize=10, pad=8)
        figure.subplots_adjust(left=0, right=1, top=1, bottom=0)  # labels are outside; saving makes room
        figure.suptitle(title, fontsize=11, y=1 + 0.6 / (high * depth))

    layout = {"gridspec_kw": {"width_ratios": [left, right], "wspace": 0.6 / (left + right)}}
    return picture(left + right + 0.6, high * depth, draw, 1, 2, **layout)


def _draw_choices(axes: Any, routing_LTE: Tensor, cell: tuple[float, float]) -> None:
    """One cell for each layer and token, with a band for each of its experts, as high as its weight."""
    depth, count, experts = routing_LTE.shape
    colours = expert_colours(experts)
    image = np.full((depth * BANDS, count, 3), NO_EXPERT)
    for layer in range(depth):
        for token in range(count):
            chosen = chosen_experts(routing_LTE[layer, token])
            total, top = sum(weight for _, weight in chosen), 0.0
            for expert, weight in chosen:
                end = top + weight / total
                rows = slice(layer * BANDS + round(top * BANDS), layer * BANDS + round(end * BANDS))
                image[rows, token] = colours[expert]
                _name_band(axes, (token, layer - 0.5 + (top + end) / 2), expert, weight, end - top, cell,
                           colours[expert])  # fmt: skip
                top = end
            if not chosen and min(cell) > 0.2:
                axes.text(token, layer, "–", ha="center", va="center", fontsize=9, color=FAINT)
    axes.imshow(image, aspect="auto", interpolation="nearest", extent=(-0.5, count - 0.5, depth - 0.5, -0.5))
    _grid(axes, depth, count)


def _name_band(
    axes: Any,
    at: tuple[float, float],
    expert: int,
    weight: float,
    share: float,
    cell: tuple[float, float],
    colour: tuple[float, float, float],
) -> None:
    """The number of the expert and its weight, as far as there is room for them (in inches)."""
    wide, high = cell[0], cell[1] * share
    if wide < 0.2 or high < 0.12:
        return
    size = min(9.0, 60 * high)
    ink = "white" if _is_dark(colour) else INK
    text = f"{expert}" if wide < 0.5 else f"{expert}  {f'{weight:.2f}'.removeprefix('0')}"
    axes.text(*at, text, ha="center", va="center", fontsize=min(size, 7.5 if len(text) > 3 else 9), color=ink)


def _draw_load(axes: Any, load_LE: Tensor, cell: tuple[float, float]) -> None:
    """The share of each expert in the choices of a layer, darker the more; its colour is above it."""
    depth, experts = load_LE.shape
    top = max(float(load_LE.max()), 2 / experts)
    axes.imshow(load_LE.numpy(), cmap="Greys", vmin=0, vmax=top * 1.25, aspect="auto")
    if cell[0] > 0.3:
        for layer, row in enumerate(load_LE.tolist()):
            for expert, share in enumerate(row):
                ink = "white" if share > 0.7 * top else INK if share else FAINT
                axes.text(expert, layer, f"{share:.0%}", ha="center", va="center", fontsize=7.5, color=ink)
    every = max(1, round(0.3 / cell[0]))
    shown = range(0, experts, every)
    axes.set_xticks(list(shown), [str(e) for e in shown], fontsize=8)
    axes.set_xlabel("expert", fontsize=8)
    axes.set_yticks([])
    plain(axes)
    _grid(axes, depth, experts)
    strip = np.array([expert_colours(experts)])  # the legend of the colours
    share = 0.05 / (cell[1] * depth)
    legend = axes.inset_axes((0, -share, 1, share))
    legend.imshow(strip, aspect="auto", interpolation="nearest")
    legend.axis("off")
    axes.tick_params(axis="x", pad=6)


def expert_colours(count: int) -> list[tuple[float, float, float]]:
    """A colour for each expert: from a palette where that is enough, else around the colour wheel."""
    from matplotlib import colormaps

    if count <= 10:
        return [tuple(rgb) for rgb in colormaps["tab10"].colors[:count]]  # type: ignore[attr-defined]
    return [colorsys.hls_to_rgb(i * HUE_STEP % 1, (0.42, 0.58, 0.72)[i % 3], 0.55) for i in range(count)]


def _grid(axes: Any, rows: int, columns: int) -> None:
    """White lines between the cells."""
    for lines, number in ((axes.axhline, rows), (axes.axvline, columns)):
        for i in range(1, number if number <= 100 else 0):
            lines(i - 0.5, color="white", linewidth=1.2 if number <= 40 else 0.4)


def _is_dark(colour: tuple[float, float, float]) -> bool:
    return 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] < 0.58


def _cell(count: int, most: float, inches: float) -> float:
    """Inches per cell: readable for few, a limited total size for many."""
    return min(inches, most / count)
