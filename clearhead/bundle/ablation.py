"""Ablations: a bundle and texts with reference answers in; exact match without each part of the model out.

The answers are generated again by a model that lacks one part (`Bundle.without`) or, for the order of the
words, by the whole model from shuffled words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..data import epoch_order
from .bundle import Bundle

# The part, and its name for `Bundle.without`; "" is the whole model.
PARTS = {
    "nothing": "",
    "order of the words": "",
    "positions": "positions",
    "cross-attention": "cross",
    "residual connections": "residual",
    "attention scale 1/√d": "scale",
    "causal mask": "mask",
}


@dataclass(frozen=True)
class Ablation:
    """`exact` is the percentage of texts whose answer is right, character for character."""

    without: str
    exact: float


def ablations(
    bundle: Bundle, texts: Sequence[str], wanted: Sequence[str], *, seed: int = 0
) -> list[Ablation]:
    """One row for each of `PARTS` that the model has; the first is the whole model."""
    rows = []
    for part, word in PARTS.items():
        if word == "cross" and bundle.spec.source_tower is None:
            continue
        inputs = shuffled(texts, seed) if part == "order of the words" else texts
        ablated = bundle.without(word) if word else bundle
        rows.append(Ablation(part, exact_match(ablated, inputs, wanted)))
    return rows


def exact_match(bundle: Bundle, texts: Sequence[str], wanted: Sequence[str]) -> float:
    """In percent, by greedy decoding, up to slightly more tokens than the longest reference has."""
    limit = 2 + max(len(bundle.encode(text)) for text in wanted)
    answers = bundle.generate(list(texts), batch=64, max_new_tokens=limit, num_beams=1, do_sample=False)
    return 100 * sum(map(str.__eq__, answers, wanted)) / len(wanted)


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    """The words of each text in a random order that depends on the seed only."""
    rows = []
    for row, text in enumerate(texts):
        words = text.split()
        rows.append(" ".join(words[i] for i in epoch_order(seed, row, len(words), "words")))
    return rows
