"""Stale products: weights that were written to behind torch's back in; layers that compute with them out.

torch counts the writes to a parameter, and other memory has another address, so a layer notices both at once.
A write through `.data` or NumPy is not counted: `weight.data[3] = 0`. These are looked for at the start of a
run, which takes a fraction of a millisecond:

    mapped from a file   any write is seen, because the system copied the page (`pages.py`)
    in memory            a few numbers of every weight are compared: enough to see that a weight was scaled,
                         replaced or merged with an adapter; a change of single rows is seen only by chance

So write to a weight in memory under `torch.no_grad()`, which torch counts, or prepare the model again.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from .pages import AddressRange, are_as_in_file, are_written, files_of
from .products import BoundProduct

SAMPLED_WEIGHTS = 16  # numbers of a weight that are compared, about


class PackedWeights:
    """The weights of all products, as they were when they were packed."""

    def __init__(self) -> None:
        self._weights: list[tuple[BoundProduct, Tensor]] = []
        self._mapped: list[tuple[BoundProduct, AddressRange]] = []
        self._files: list[AddressRange] = []  # that these are in
        self._samples: list[tuple[BoundProduct, Tensor]] = []
        self._numbers: Tensor | None = None  # of all samples, one after the other

    def add(self, bound: BoundProduct, weight: Tensor, bias: Tensor | None) -> None:
        self._weights += [(bound, x.detach()) for x in (weight, bias) if x is not None]

    def remember(self) -> None:
        """Note how the weights are now; afterwards they may change."""
        of_file = are_as_in_file([weight for _, weight in self._weights])
        self._mapped, self._samples = [], []
        for (bound, weight), mapped in zip(self._weights, of_file, strict=True):
            if mapped:
                self._mapped.append((bound, AddressRange.of(weight)))
            else:
                self._samples.append((bound, _sample(weight)))
        self._files = files_of(weight for _, weight in self._weights) if self._mapped else []
        self._numbers = torch.cat([view for _, view in self._samples]) if self._samples else None

    def drop_stale(self) -> None:
        """Products whose weights changed are not used any more."""
        stale = {*self._written(), *self._changed()}
        if not stale:
            return
        for bound in stale:
            bound.expire()
        self._weights = [(bound, weight) for bound, weight in self._weights if bound not in stale]
        self.remember()
        logging.getLogger("clearhead.engine").warning(
            "the weights of %d layers changed after they were packed: these layers compute with the plain "
            "weights; prepare the model again for speed",
            len(stale),
        )

    def _written(self) -> list[BoundProduct]:
        """Products whose weights are mapped and were written to."""
        if not any(are_written(self._files)):
            return []
        written = are_written([where for _, where in self._mapped])
        return [bound for (bound, _), changed in zip(self._mapped, written, strict=True) if changed]

    def _changed(self) -> list[BoundProduct]:
        """Products whose weights are in memory and have other numbers now."""
        views = [view for _, view in self._samples]
        if self._numbers is None or torch.equal(torch.cat(views), self._numbers):
            return []
        before = torch.split(self._numbers, [len(view) for view in views])
        pairs = zip(self._samples, before, strict=True)
        return [bound for (bound, view), numbers in pairs if not torch.equal(view, numbers.to(view.dtype))]


def _sample(x: Tensor) -> Tensor:
    """A view of some numbers of different rows and columns."""
    rows = max(1, len(x) // SAMPLED_WEIGHTS)
    return x[::rows] if x.ndim == 1 else x[::rows, :: max(1, x.shape[1] // SAMPLED_WEIGHTS)].diagonal()
