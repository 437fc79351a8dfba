"""Findings, and those that the curves of a run give: loss, gradients, learning rate, speed, validation.

Each function checks one thing; its thresholds are the constants below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Literal

Level = Literal["ok", "note", "wrong"]  # only "wrong" makes `clearhead doctor` fail
MIN_CURVE_STEPS = 20  # with fewer steps a curve means little
LOSS_RISE = 1.2  # the end against the best tenth: more is a loss that went up again
LOSS_FALL = 0.97  # the end against the beginning: more is a loss that does not fall
GRADIENT_SPIKE = 30.0  # the largest gradient against the median
TINY_GRADIENT = 1e-5  # a median gradient below this moves nothing
CLIPPED_SHARE = 0.5  # share of clipped steps from which the clip sets the step size
SLOWDOWN = 0.5  # the speed of the last quarter against the first


@dataclass(frozen=True)
class Finding:
    """One thing that was checked, what was measured, and what to do if it is not as it should be."""

    name: str
    value: str
    level: Level = "ok"
    advice: str = ""  # what to do; empty where all is well


def is_healthy(findings: Iterable[Finding]) -> bool:
    return all(finding.level != "wrong" for finding in findings)


@dataclass(frozen=True)
class Curves:
    """What metrics.jsonl holds, as lists."""

    steps: list[dict[str, Any]]
    validations: list[dict[str, Any]]

    def of(self, name: str) -> list[float]:
        return [float(r[name]) for r in self.steps if r.get(name) is not None]


def check_loss(curves: Curves, vocab: int | None) -> Finding:
    values = curves.of("loss")
    not_finite = sum(r.get("loss") is None for r in curves.steps)
    if not_finite:
        advice = "a lower learning rate, a longer warm-up, and a look at the rows of that step"
        return Finding(
            "loss", f"not a finite number in {not_finite} of {len(curves.steps)} steps", "wrong", advice
        )
    if not values:
        return Finding(
            "loss", "no step was logged", "wrong", "was the run started? see clearhead train --resume"
        )
    tenth = max(len(values) // 10, 1)
    means = [fmean(values[i : i + tenth]) for i in range(0, len(values) - tenth + 1, tenth)]
    summary = f"{means[0]:.3g} at first, {means[-1]:.3g} now, {min(means):.3g} at best"
    if len(values) < MIN_CURVE_STEPS:
        return Finding("loss", f"{summary} ({len(values)} steps mean little)", "note", "let it run longer")
    if means[-1] > LOSS_RISE * min(means) + 1e-3:
        advice = "a lower learning rate, clipping at 1.0, or a longer warm-up"
        return Finding("loss", f"{summary}: it went up again", "wrong", advice)
    if means[-1] > LOSS_FALL * means[0]:
        advice = "a larger learning rate, more steps, and clearhead data check on the file: are labels right?"
        return Finding("loss", f"{summary}: it does not fall", "wrong", advice)
    if vocab is not None and values[0] > 1.5 * math.log(vocab):
        advice = "initial weights are too large: a smaller initializer_range"
        return Finding(
            "loss", f"{summary}; a uniform guess among {vocab:,} gives {math.log(vocab):.3g}", "note", advice
        )
    return Finding("loss", summary)


def check_gradient(curves: Curves, clip: float | None, *, known: bool = True) -> Finding:
    """A run with gradient clipping survives a jump; one without does not. Without settings it is unknown."""
    norms = curves.of("grad_norm")
    if not norms:
        return Finding("gradient", "none logged")
    middle, later = median(norms), norms[len(norms) // 2 :]
    clipped = sum(norm > clip for norm in later) / len(later) if clip else 0.0
    summary = f"norm {middle:.2g} at the median, {max(norms):.2g} at the largest"
    summary += f", {clipped:.0%} of the later steps clipped at {clip:g}" if clip else ""
    if middle < TINY_GRADIENT:
        advice = "it vanishes: pre-norm blocks, larger initial weights, or a loss with targets"
        return Finding("gradient", summary, "wrong", advice)
    jump = _largest_jump(norms)
    if jump > GRADIENT_SPIKE and (clip is None or max(norms) > GRADIENT_SPIKE * clip):
        advice = "a lower learning rate, a longer warm-up" + ("" if clip else ", clipping at 1.0")
        unclipped = known and clip is None
        return Finding(
            "gradient", f"{summary}: it jumped {jump:.0f}-fold", "wrong" if unclipped else "note", advice
        )
    if clipped > CLIPPED_SHARE:
        return Finding(
            "gradient", summary, "note", "the clip sets the step: raise it, or lower the learning rate"
        )
    return Finding("gradient", summary)


def _largest_jump(norms: Sequence[float]) -> float:
    """The largest gradient against the median of the steps before it; a run's beginning does not count."""
    ratios = [
        norms[i] / max(median(norms[max(i - 50, 0) : i]), 1e-30) for i in range(MIN_CURVE_STEPS, len(norms))
    ]
    return max(ratios, default=0.0)


def check_learning_rate(curves: Curves, steps: int | None, warmup: int | None, *, post_norm: bool) -> Finding:
    rates = curves.of("lr")
    if not rates:
        return Finding("rate", "none logged")
    summary = f"{max(rates):.2g} at its peak, {rates[-1]:.2g} now"
    summary += f", warm-up of {warmup} in {steps:,} steps" if warmup is not None and steps else ""
    if max(rates) > 0.01:
        return Finding(
            "rate", summary, "note", "above 0.01 few Transformers stay stable; 1e-4 to 1e-3 is usual"
        )
    if warmup == 0 and post_norm:
        return Finding(
            "rate", summary, "note", "post-norm blocks need a warm-up: some hundred steps, or pre-norm"
        )
    if warmup and steps and warmup > steps / 2:
        return Finding(
            "rate", summary, "note", "the warm-up takes most of the run: shorten it, or train longer"
        )
    return Finding("rate", summary)


def check_speed(curves: Curves) -> Finding:
    speeds = [float(r["speed"]["tokens_per_second"]) for r in curves.steps if r.get("speed")]
    if not speeds:
        return Finding("speed", "none logged")
    quarter = max(len(speeds) // 4, 1)
    first, last = median(speeds[:quarter]), median(speeds[-quarter:])
    summary = f"{median(speeds):,.0f} targets/s at the median, {last:,.0f} of late"
    if len(speeds) >= MIN_CURVE_STEPS and last < SLOWDOWN * first:
        return Finding("speed", summary, "note", f"it began with {first:,.0f}: is something else running?")
    return Finding("speed", summary)


def check_validation(curves: Curves, metric: str, *, larger: bool) -> Finding:
    scored = [
        (r["step"], r["scores"][metric]) for r in curves.validations if r["scores"].get(metric) is not None
    ]
    if not scored:
        advice = "give --train.valid_every, to see whether it generalises or only memorises"
        return Finding("validation", "none", "note", advice)
    sign = 1 if larger else -1
    at, best = max(scored, key=lambda pair: sign * pair[1])
    summary = f"{metric} {best:.4g} at its best, in step {at}; {scored[-1][1]:.4g} at the last"
    after = [value for step, value in scored if step > at]
    worsens = all(sign * b <= sign * a for a, b in pairwise([best, *after]))
    if len(after) >= 2 and worsens:
        advice = "it memorises its rows: stop there (patience), more dropout, more data, a smaller model"
        return Finding("validation", f"{summary}: worse ever since", "note", advice)
    return Finding("validation", summary)
