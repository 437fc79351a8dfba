"""Drift: a checkpoint and other kernels in; how far each takes its answers from those with its own out.

The weights were learned with the kernel that the checkpoint has. A kernel that is put in its place without
any training shows here what it changes, on a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..bundle import Bundle, load, parse
from ..certify import SampleBatch
from ..errors import ClearheadError
from ..nn import AttentionKernel
from .timing import ProgressCallback

DRIFT_TEXT = (
    "It was a bright cold day in spring, and the clocks of the old town were striking one after the other. "
    "The man who sold apples at the corner of the market had not come, and nobody knew why. His stall stood "
    "there as he had left it the evening before, with the scales, the paper bags and a small dog that looked "
    "at everyone who passed. In the afternoon a letter arrived. It said that he had gone to the sea, that "
    "the apples were for those who wanted them, and that somebody should please look after the dog."
)


@dataclass(frozen=True)
class Drift:
    states: float  # how far the last hidden states moved, relative to their size
    bits: float | None  # Kullback-Leibler divergence of the answers, mean over tokens
    same: float | None  # share of the places where the likeliest answer is the same


def drifts(
    folder: str, variants: Sequence[str], text: str | None, progress: ProgressCallback
) -> tuple[dict[str, Drift], dict[str, str]]:
    """The drift of each kernel, and the errors of those that this model does not support."""
    base = load(folder, dtype="float32")
    inputs = _inputs(base, text or DRIFT_TEXT)
    states, answer = _run(base, inputs)
    drift_of: dict[str, Drift] = {}
    refused: dict[str, str] = {}
    for word in (word for word in variants if isinstance(parse(word), AttentionKernel)):
        progress(f"drift: {word}")
        try:
            moved, moved_answer = _run(load(folder, dtype="float32", edit={"Attention.kernel": word}), inputs)
        except ClearheadError as error:
            refused[word] = str(error)
            continue
        away = float((moved - states).norm() / states.norm())
        drift_of[word] = Drift(away, *_answers(answer, moved_answer))
    return drift_of, refused


def _inputs(bundle: Bundle, text: str) -> tuple[Tensor, ...]:
    """The beginning of the text, as much as fits; random ids for a model without a tokenizer."""
    first, *others = SampleBatch.of(bundle, rows=1, length=128).inputs
    if bundle.tokenizer is not None:
        longest = min(512, bundle.spec.max_length or 512)
        first = torch.tensor([bundle.encode(text)[:longest]])
    return (first, *others)


@torch.no_grad()
def _run(bundle: Bundle, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    return bundle.model.hidden(*inputs), bundle.model(*inputs)


def _answers(one: Tensor, two: Tensor) -> tuple[float | None, float | None]:
    """Divergence in bits and agreement of the top token; None for outputs that are not token logits."""
    if one.ndim != 3 or one.shape[-1] < 10:
        return None, None
    before, after = one.log_softmax(-1), two.log_softmax(-1)
    bits = (before.exp() * (before - after)).sum(-1).mean() / torch.log(torch.tensor(2.0))
    return float(bits), float((one.argmax(-1) == two.argmax(-1)).float().mean())
