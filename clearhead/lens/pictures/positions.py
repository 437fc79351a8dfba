"""Pictures of position schemes: what they add or rotate, wavelengths, similarity by distance, and bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import InputError
from ..position_effects import PositionEffects
from .canvas import BLUE, INK, Picture, light, picture, powers


def position_picture(effects: PositionEffects, title: str = "") -> Picture:
    """One panel per effect that the scheme has."""
    panels: list[tuple[Callable[[Any, Any, PositionEffects], None], float]] = []
    if effects.added_TD is not None or effects.rotated_TE is not None:
        panels.append((_matrix, 5.8))
    if effects.wavelengths:
        panels.append((_waves, 3.8))
    if effects.similarity is not None:
        panels.append((_similarity, 3.8))
    if effects.bias_HT is not None:
        panels.append((_bias, 4.6))
    if not panels:
        raise InputError(f"{effects.name} has no effect on positions; there is nothing to draw")

    def draw(figure: Any, axes: Any) -> None:
        for at, (panel, _) in zip(axes[0], panels, strict=True):
            panel(figure, at, effects)
        figure.suptitle(title or f"Positional Encoding Visualization · {effects.name}", y=1.02, fontsize=12)
        figure.subplots_adjust(wspace=0.7)  # room for the numbers of the colour bar

    widths = [width for _, width in panels]
    return picture(
        sum(widths), 3.8, draw, 1, len(panels), squeeze=False, gridspec_kw={"width_ratios": widths}
    )


def _matrix(figure: Any, axes: Any, effects: PositionEffects) -> None:
    x = effects.added_TD if effects.added_TD is not None else effects.rotated_TE
    assert x is not None
    edge = float(x.abs().flatten().float().quantile(0.995))  # a few large channels must not hide the rest
    image = axes.pcolormesh(x.numpy(), cmap="RdBu", vmin=-edge, vmax=edge, rasterized=True)
    axes.set_xlabel("Dimension")
    axes.set_ylabel("Position")
    axes.set_title(
        "added to the embeddings" if effects.added_TD is not None else "a vector of ones after rotation"
    )
    figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03).outline.set_visible(False)


def _waves(figure: Any, axes: Any, effects: PositionEffects) -> None:
    axes.plot(effects.wavelengths, color=BLUE)
    powers(axes)
    first, last = effects.wavelengths[0], effects.wavelengths[-1]
    axes.set_title("wavelengths")
    axes.set_xlabel("pair of channels")
    axes.set_ylabel("tokens per turn")
    axes.annotate(f"{first:.1f}", (0, first), fontsize=8, xytext=(6, -2), textcoords="offset points")
    axes.annotate(f"{last:,.0f}", (len(effects.wavelengths) - 1, last), fontsize=8, ha="right",
                  xytext=(-6, 0), textcoords="offset points")  # fmt: skip
    light(axes)


def _similarity(figure: Any, axes: Any, effects: PositionEffects) -> None:
    assert effects.similarity is not None
    axes.plot(effects.similarity.numpy(), color=BLUE)
    axes.axhline(0, color=INK, linewidth=0.4)
    axes.set_title("similarity by distance")
    axes.set_xlabel("tokens apart")
    axes.set_ylabel("mean cosine similarity")
    light(axes)


def _bias(figure: Any, axes: Any, effects: PositionEffects) -> None:
    import matplotlib

    assert effects.bias_HT is not None
    heads = len(effects.bias_HT)
    colours = matplotlib.colormaps["viridis"]
    for head, row in enumerate(effects.bias_HT):
        axes.plot(row.numpy(), color=colours(head / max(heads - 1, 1)), linewidth=1.2, label=f"head {head}")
    axes.set_title("bias on the score")
    axes.set_xlabel("tokens back")
    axes.legend(fontsize=6.5, frameon=False, ncols=2)
    light(axes)
