"""The logit lens as a table: what each layer would have said, layer by layer from the bottom up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..logit_lens import LogitLens
from .canvas import INK, Picture, picture, plain, short_label


def guess_table(
    guesses: LogitLens, tokens: Sequence[str], title: str = "", answers: Sequence[str] = ()
) -> Picture:
    """A cell holds the likeliest guess; the darker, the surer. `answers` stand above the last layer."""
    layers, count = guesses.ids.shape[:2]

    def draw(figure: Any, axes: Any) -> None:
        sure = guesses.probabilities[:, :, 0].flip(0).numpy()
        axes.imshow(sure, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for i in range(layers):
            for t in range(count):
                value, label = sure[i][t], guesses.labels[layers - 1 - i][t][0]
                axes.text(t, i, short_label(label, 10), ha="center", va="center", fontsize=8,
                          color="white" if value > 0.55 else INK)  # fmt: skip
        names = ["embedding", *(f"layer {i}" for i in range(layers - 1))]
        axes.set_yticks(range(layers), names[::-1], fontsize=8)
        axes.set_xticks(range(count), [short_label(token) for token in tokens], fontsize=9)
        axes.set_xlabel("read so far, up to this token")
        if answers:
            top = axes.secondary_xaxis("top")
            top.set_xticks(range(count), [short_label(answer) for answer in answers], fontsize=9)
            top.tick_params(length=0)
            top.spines["top"].set_visible(False)
        plain(axes)
        axes.set_title(title, pad=14)

    return picture(max(0.72 * count + 1.5, 4), 0.34 * layers + 1.3, draw)
