"""The curves of a run: its loss, gradients, rate and speed in; findings with measured values out.

Each function looks at one thing and knows one rule; thresholds stand beside them by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from .finding import Finding

FEW = 20  # steps, below which a curve says little
RISE = 1.2  # the end against the best stretch: more is a loss that went up again
FALL = 0.97  # the end against the beginning: more is a loss that does not fall
SPIKE = 30.0  # the largest gradient against the median
TINY = 1e-5  # a median gradient below this moves nothing
OFTEN = 0.5  # of the steps cut by clipping
SLOWER = 0.5  # the speed of the last quarter against the first


@dataclass(frozen=True)
class Curves:
    """What metrics.jsonl holds, as lists."""

    steps: list[dict[str, Any]]
    validations: list[dict[str, Any]]

    def of(self, name: str) -> list[float]:
        return [float(r[name]) for r in self.steps if r.get(name) is not None]


def loss(curves: Curves, vocab: int | None) -> Finding:
    values = curves.of("loss")
    lost = sum(r.get("loss") is None for r in curves.steps)
    if lost:
        advice = "a lower learning rate, a longer warm-up, and a look at the rows of that step"
        return Finding("loss", f"not a finite number in {lost} of {len(curves.steps)} steps", "wrong", advice)
    if not values:
        return Finding(
            "loss", "no step was logged", "wrong", "was the run started? see clearhead train --resume"
        )
    tenth = max(len(values) // 10, 1)
    means = [fmean(values[i : i + tenth]) for i in range(0, len(values) - tenth + 1, tenth)]
    said = f"{means[0]:.3g} at first, {means[-1]:.3g} now, {min(means):.3g} at best"
    if len(values) < FEW:
        return Finding("loss", f"{said} ({len(values)} steps say little)", "note", "let it run longer")
    if means[-1] > RISE * min(means) + 1e-3:
        advice = "a lower learning rate, clipping at 1.0, or a longer warm-up"
        return Finding("loss", f"{said}: it went up again", "wrong", advice)
    if means[-1] > FALL * means[0]:
        advice = "a larger learning rate, more steps, and clearhead data check on the file: are labels right?"
        return Finding("loss", f"{said}: it does not fall", "wrong", advice)
    if vocab is not None and values[0] > 1.5 * math.log(vocab):
        advice = "first weights are too large: a smaller initializer_range"
        return Finding(
            "loss", f"{said}; guessing among {vocab:,} gives {math.log(vocab):.3g}", "note", advice
        )
    return Finding("loss", said)


def gradient(curves: Curves, clip: float | None, *, known: bool = True) -> Finding:
    """A run that clips survives a jump; one that does not is ill. Without settings it is not known."""
    norms = curves.of("grad_norm")
    if not norms:
        return Finding("gradient", "none logged")
    middle, later = median(norms), norms[len(norms) // 2 :]
    cut = sum(norm > clip for norm in later) / len(later) if clip else 0.0
    said = f"norm {middle:.2g} at the median, {max(norms):.2g} at the largest"
    said += f", {cut:.0%} of the later steps clipped at {clip:g}" if clip else ""
    if middle < TINY:
        advice = "it vanishes: pre-norm blocks, larger first weights, or a loss that counts something"
        return Finding("gradient", said, "wrong", advice)
    jump = _jump(norms)
    if jump > SPIKE and (clip is None or max(norms) > SPIKE * clip):
        advice = "a lower learning rate, a longer warm-up" + ("" if clip else ", clipping at 1.0")
        bare = known and clip is None
        return Finding("gradient", f"{said}: it jumped {jump:.0f}-fold", "wrong" if bare else "note", advice)
    if cut > OFTEN:
        return Finding(
            "gradient", said, "note", "the clip sets the step: raise it, or lower the learning rate"
        )
    return Finding("gradient", said)


def _jump(norms: Sequence[float]) -> float:
    """The largest gradient against the median of the steps before it; a run's beginning does not count."""
    ratios = [norms[i] / max(median(norms[max(i - 50, 0) : i]), 1e-30) for i in range(FEW, len(norms))]
    return max(ratios, default=0.0)


def rate(curves: Curves, steps: int | None, warmup: int | None, *, post_norm: bool) -> Finding:
    rates = curves.of("lr")
    if not rates:
        return Finding("rate", "none logged")
    said = f"{max(rates):.2g} at its peak, {rates[-1]:.2g} now"
    said += f", warm-up of {warmup} in {steps:,} steps" if warmup is not None and steps else ""
    if max(rates) > 0.01:
        return Finding("rate", said, "note", "above 0.01 few Transformers stay stable; 1e-4 to 1e-3 is usual")
    if warmup == 0 and post_norm:
        return Finding(
            "rate", said, "note", "post-norm blocks need a warm-up: some hundred steps, or pre-norm"
        )
    if warmup and steps and warmup > steps / 2:
        return Finding("rate", said, "note", "the warm-up takes most of the run: shorten it, or train longer")
    return Finding("rate", said)


def speed(curves: Curves) -> Finding:
    speeds = [float(r["speed"]["tokens_per_second"]) for r in curves.steps if r.get("speed")]
    if not speeds:
        return Finding("speed", "none logged")
    quarter = max(len(speeds) // 4, 1)
    first, last = median(speeds[:quarter]), median(speeds[-quarter:])
    said = f"{median(speeds):,.0f} targets/s at the median, {last:,.0f} of late"
    if len(speeds) >= FEW and last < SLOWER * first:
        return Finding("speed", said, "note", f"it began with {first:,.0f}: is something else running?")
    return Finding("speed", said)


def validation(curves: Curves, metric: str, *, larger: bool) -> Finding:
    scored = [
        (r["step"], r["scores"][metric]) for r in curves.validations if r["scores"].get(metric) is not None
    ]
    if not scored:
        advice = "give --train.valid_every, to see whether it learns or only remembers"
        return Finding("validation", "none", "note", advice)
    sign = 1 if larger else -1
    at, best = max(scored, key=lambda pair: sign * pair[1])
    said = f"{metric} {best:.4g} at its best, in step {at}; {scored[-1][1]:.4g} at the last"
    after = [value for step, value in scored if step > at]
    if len(after) >= 2 and _worsens([best, *after], sign):
        advice = "it remembers its rows: stop there (patience), more dropout, more data, a smaller model"
        return Finding("validation", f"{said}: worse ever since", "note", advice)
    return Finding("validation", said)


def _worsens(values: Sequence[float], sign: int) -> bool:
    return all(sign * b <= sign * a for a, b in pairwise(values))
