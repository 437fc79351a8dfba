"""Pictures of training: the records of metrics.jsonl as curves, and gradient norms by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ..gradients import Gradients
from .canvas import ACCENT, BLUE, FAINT, Picture, light, picture, powers

PANELS = {"loss": "loss", "grad_norm": "gradient norm, before clipping", "lr": "learning rate"}


def curves(records: Sequence[Mapping[str, Any]], title: str = "") -> Picture:
    """Loss with validation, gradient norm, learning rate and tokens per second, by step."""
    series = {
        name: [(r["step"], r[name]) for r in records if isinstance(r.get(name), int | float)]
        for name in PANELS
    }
    timed = [r for r in records if "tokens_per_second" in r.get("speed", {})]
    series["speed"] = [(r["step"], r["speed"]["tokens_per_second"]) for r in timed]
    panels = {name: points for name, points in series.items() if points}
    if not panels:
        raise InputError("there is nothing to draw yet: metrics.jsonl has no step with a loss")
    validated = [r for r in records if r.get("split") == "valid" and "loss" in r.get("scores", {})]
    valid = [(r["step"], r["scores"]["loss"]) for r in validated]

    def draw(figure: Any, axes: Any) -> None:
        for at, (name, points) in zip(axes[0], panels.items(), strict=True):
            steps, values = zip(*points, strict=True)
            at.plot(steps, values, color=BLUE, linewidth=1.2, label="train")
            if name in ("loss", "grad_norm") and min(values) > 0:
                powers(at)
            if name == "loss" and valid:
                at.plot(*zip(*valid, strict=True), "o-", color=ACCENT, markersize=4, label="validation")
                at.legend(frameon=False, fontsize=8)
            at.set_title(PANELS.get(name, "target tokens per second"))
            at.set_xlabel("step")
            light(at)
        figure.suptitle(title, y=1.02)
        figure.subplots_adjust(wspace=0.3)

    return picture(3.9 * len(panels), 3.0, draw, 1, len(panels), squeeze=False)


def gradient_strip(gradients: Gradients, title: str = "") -> Picture:
    """One bar per layer on a logarithmic scale, from input to output; unusual norms are marked."""
    names = list(gradients.layers)

    def draw(figure: Any, axes: Any) -> None:
        for i, name in enumerate(names):
            mark = gradients.mark(name)
            axes.bar(i, max(gradients.layers[name], 1e-12), color=ACCENT if mark else BLUE, width=0.7)
            if mark:
                axes.text(i, gradients.layers[name], mark, ha="center", va="bottom", fontsize=7, color=ACCENT)
        powers(axes)
        axes.axhline(gradients.total, color=FAINT, linewidth=0.8, linestyle="--")
        axes.text(
            len(names) - 0.5,
            gradients.total,
            f"total {gradients.total:.3g}",
            ha="right",
            va="bottom",
            fontsize=8,
        )
        axes.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
        axes.set_ylabel("gradient norm")
        axes.set_title(title, pad=10)
        light(axes)

    return picture(max(0.42 * len(names) + 1.5, 4.5), 3.4, draw)
