"""Five invariances: caching, padding, batching, chunking and saving must not change the output.

Each check returns the difference of two runs relative to the size of the output; None if it does not apply.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..bundle import Bundle, load, save
from ..errors import UnsupportedError
from .sample import SampleBatch


def step_by_step(bundle: Bundle, sample: SampleBatch) -> float | None:
    """One token at a time, with a cache, against all at once; None if there is no cache (LSH)."""
    return _in_chunks(bundle, sample, [1] * sample.inputs[-1].shape[1])


def chunked(bundle: Bundle, sample: SampleBatch) -> float | None:
    """The prompt in pieces of seven, with a cache, against all at once."""
    length = sample.inputs[-1].shape[1]
    return _in_chunks(bundle, sample, [min(7, length - at) for at in range(0, length, 7)])


@torch.no_grad()
def padded(bundle: Bundle, sample: SampleBatch) -> float | None:
    """Five padding tokens before or after the text against none."""
    want, ids, found = sample.answer(bundle), sample.inputs[0], []
    rows, length = ids.shape
    spare = [t.max_length - length for t in bundle.spec.towers.values() if t.max_length is not None]
    count = min([5, *spare])
    if count < 1:
        return None
    for left, right in ((count, 0), (0, count)):
        filler = ids[:, :1]  # any id: it must be ignored
        wide = torch.cat([filler.expand(-1, left), ids, filler.expand(-1, right)], dim=1)
        real = torch.zeros(rows, left + length + right, dtype=torch.long)
        real[:, left : left + length] = 1
        got = bundle.model(wide, *sample.inputs[1:], real)
        if not bundle.spec.is_encoder_decoder and got.ndim == 3:  # an answer for each token, padding too
            first = 0 if bundle.spec.head_tower.shortens else left  # pooled states are aligned to the left
            got = got[:, first : first + want.shape[1]]
        found.append(_apart(got, want))
    return max(found)


@torch.no_grad()
def alone(bundle: Bundle, sample: SampleBatch) -> float | None:
    """Each row alone against all in one batch."""
    want = sample.answer(bundle)
    rows = [SampleBatch(tuple(x[i : i + 1] for x in sample.inputs)).answer(bundle) for i in range(len(want))]
    return _apart(torch.cat(rows), want)


def saved(bundle: Bundle, sample: SampleBatch) -> float | None:
    """Saved and loaded again: every weight bit for bit, and the same answer."""
    with tempfile.TemporaryDirectory() as folder:
        save(bundle, folder)
        again = load(folder)
        mine, theirs = bundle.model.state_dict(), again.model.state_dict()
        same = set(mine) == set(theirs) and all(torch.equal(x, theirs[name]) for name, x in mine.items())
        return _apart(sample.answer(again), sample.answer(bundle)) if same else float("inf")


CHECKS: dict[str, Callable[[Bundle, SampleBatch], float | None]] = {
    "cache on and off": step_by_step,
    "padded and not": padded,
    "alone and in a batch": alone,
    "prompt in chunks": chunked,
    "save and load": saved,
}


@torch.no_grad()
def _in_chunks(bundle: Bundle, sample: SampleBatch, sizes: Sequence[int]) -> float | None:
    model = bundle.model
    if not bundle.spec.decodes or bundle.task not in ("tokens", "hidden", "decoder"):
        return None
    want, cache = sample.answer(bundle), model.cache()
    try:
        source = model.encode(sample.inputs[0]) if bundle.spec.is_encoder_decoder else None
        pieces = torch.split(sample.inputs[-1], list(sizes), dim=1)
        parts = [model.read(model.decode(piece, source, cache=cache)) for piece in pieces]
    except UnsupportedError:
        return None
    return _apart(torch.cat(parts, dim=1), want)


def _apart(one: Tensor, two: Tensor) -> float:
    return float((one - two).abs().max()) / max(1.0, float(two.abs().max()))
