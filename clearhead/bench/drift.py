"""Drift: a checkpoint and other attention kernels in; how much each changes its outputs on a text out.

The weights were trained with the checkpoint's own kernel; the others replace it without further training.
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
    states: float  # distance of the last hidden states, relative to their norm
    bits: float | None  # mean KL divergence of the predictions over the tokens
    same: float | None  # share of positions with the same most likely token


def drifts(
    folder: str, variants: Sequence[str], text: str | None, progress: ProgressCallback
) -> tuple[dict[str, Drift], dict[str, str]]:
    """The drift of each kernel, and the errors of those that this model does not support."""
    base = load(folder, dtype="float32")
    inputs = _inputs(base, text or DRIFT_TEXT)
    states, logits = _run(base, inputs)
    result: dict[str, Drift] = {}
    refused: dict[str, str] = {}
    for word in (word for word in variants if isinstance(parse(word), AttentionKernel)):
        progress(f"drift: {word}")
        try:
            edited = load(folder, dtype="float32", edit={"Attention.kernel": word})
            new_states, new_logits = _run(edited, inputs)
        except ClearheadError as error:
            refused[word] = str(error)
            continue
        distance = float((new_states - states).norm() / states.norm())
        result[word] = Drift(distance, *_compare_logits(logits, new_logits))
    return result, refused


def _inputs(bundle: Bundle, text: str) -> tuple[Tensor, ...]:
    """The beginning of the text, as much as fits; random ids for a model without a tokenizer."""
    first, *others = SampleBatch.of(bundle, rows=1, length=128).inputs
    if bundle.tokenizer is not None:
        length = min(512, bundle.spec.max_length or 512)
        first = torch.tensor([bundle.encode(text)[:length]])
    return (first, *others)


@torch.no_grad()
def _run(bundle: Bundle, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    return bundle.model.hidden(*inputs), bundle.model(*inputs)


def _compare_logits(one: Tensor, two: Tensor) -> tuple[float | None, float | None]:
    """Divergence in bits and agreement of the top token; None for outputs that are not token logits."""
    if one.ndim != 3 or one.shape[-1] < 10:
        return None, None
    before, after = one.log_softmax(-1), two.log_softmax(-1)
    bits = (before.exp() * (before - after)).sum(-1).mean() / torch.log(torch.tensor(2.0))
    return float(bits), float((one.argmax(-1) == two.argmax(-1)).float().mean())
