"""KV cache of a decoding run: per layer, the keys and values already computed.

Two ways to hold them: growing (a longer tensor each step) and, with a `capacity`, pre-allocated (written
in place, nothing copied). They are stored in a precision (`cache_precision`), and read back in the number
that the model computes in. Shape suffixes: B batch, H key/value heads, T tokens, E head width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import InputError
from .cache_precision import CachePrecision, from_stored, to_stored

KV = tuple[Tensor, Tensor]
State = tuple[Tensor, ...]  # batch first; its size does not depend on the length of the text


class RowOrder(Protocol):
    def reorder(self, rows: Tensor) -> None:
        """Select the given batch rows, in that order."""


class LayerCache:
    """One layer: its keys and values so far (`kv`), and those of the encoder output (`cross_kv`).

    A layer that needs no earlier keys (linear attention, a recurrent cell) has a `state` instead.
    """

    def __init__(self, capacity: int | None, precision: CachePrecision = "float32") -> None:
        self.capacity, self.precision = capacity, precision
        self.length = 0
        self.kv: KV | None = None
        self.cross_kv: KV | None = None
        self._cross_like: KV | None = None  # its widths and numbers before it was stored
        self.state: State | None = None
        self.routed_BKE: Tensor | None = None  # flags of the experts of each token, for a limited capacity

    def kv_inputs(self, x_BTD: Tensor) -> Tensor:
        """What keys and values are computed from: the new states; a segment memory prepends earlier ones."""
        return x_BTD

    def append(self, k_BHTE: Tensor, v_BHTE: Tensor) -> KV:
        """Add new keys and values, and return all of them, the new ones last."""
        if self.precision == "float32":
            return self._append(k_BHTE, v_BHTE)
        k, v = (to_stored(x, self.precision) for x in (k_BHTE, v_BHTE))
        k, v = self._append(k, v)
        return self._restored(k, k_BHTE), self._restored(v, v_BHTE)

    def _append(self, k_BHTE: Tensor, v_BHTE: Tensor) -> KV:
        start, self.length = self.length, self.length + k_BHTE.shape[2]
        if self.capacity is None:
            if self.kv is None:
                self.kv = k_BHTE, v_BHTE
            else:
                k, v = self.kv
                self.kv = torch.cat([k, k_BHTE], dim=2), torch.cat([v, v_BHTE], dim=2)
            return self.kv
        if self.kv is None:
            # Zeros, not empty: a masked slot still contributes 0 * v, and 0 * NaN would be NaN.
            self.kv = _allocate(k_BHTE, self.capacity), _allocate(v_BHTE, self.capacity)
        k, v = self.kv
        # Not k[:, :, start:end] = ...: taking a slice apart costs more than writing one token.
        k.narrow(2, start, k_BHTE.shape[2]).copy_(k_BHTE)
        v.narrow(2, start, k_BHTE.shape[2]).copy_(v_BHTE)
        return k.narrow(2, 0, self.length), v.narrow(2, 0, self.length)

    def cross(self, keys_and_values: Callable[[], KV]) -> KV:
        """The keys and values of the encoder output, computed at the first call."""
        if self.cross_kv is None:
            k, v = self.cross_kv = keys_and_values()
            self._cross_like = k[:0], v[:0]
            if self.precision != "float32":
                self.cross_kv = to_stored(k, self.precision), to_stored(v, self.precision)
        if self._cross_like is None or self.precision == "float32":
            return self.cross_kv
        (k, v), (like_k, like_v) = self.cross_kv, self._cross_like
        return self._restored(k, like_k), self._restored(v, like_v)

    def append_routed(self, routed_BTE: Tensor) -> Tensor:
        """Add the flags of the experts that new tokens chose, and return those of all tokens."""
        known = self.routed_BKE
        self.routed_BKE = routed_BTE if known is None else torch.cat([known, routed_BTE], dim=1)
        return self.routed_BKE

    def _restored(self, stored: Tensor, like: Tensor) -> Tensor:
        return from_stored(stored, self.precision, like.shape[-1], like.dtype)

    def reorder(self, rows: Tensor, sources: Tensor | None, changed: Tensor | None) -> None:
        """Select batch rows; see `Cache.reorder`. `sources` None leaves the encoder's keys as they are.

        `changed` lists the rows whose content changes; None if the number of rows changes.
        """
        if self.kv is not None:
            k, v = self.kv
            self.kv = self._reordered(k, rows, changed), self._reordered(v, rows, changed)
        if self.cross_kv is not None and sources is not None:
            self.cross_kv = self.cross_kv[0][sources], self.cross_kv[1][sources]
        self.state = self.state and tuple(part[rows] for part in self.state)
        self.routed_BKE = None if self.routed_BKE is None else self.routed_BKE[rows]

    def _reordered(self, x_BHTE: Tensor, rows: Tensor, changed: Tensor | None) -> Tensor:
        if self.capacity is None:
            return x_BHTE[rows]
        old = x_BHTE.narrow(2, 0, self.length)
        if changed is not None and 2 * len(changed) < len(rows):
            old.index_copy_(0, changed, old.index_select(0, rows[changed]))
            return x_BHTE
        # With the same number of rows the tensor is reused: a captured decode step writes into it.
        new = (
            _allocate(x_BHTE[:1].expand(len(rows), -1, -1, -1), self.capacity) if changed is None else x_BHTE
        )
        new.narrow(2, 0, self.length).copy_(old.index_select(0, rows))
        return new

    def trim(self, length: int) -> None:
        self.length = length
        if self.capacity is None and self.kv is not None:
            self.kv = self.kv[0][:, :, :length], self.kv[1][:, :, :length]
        self.routed_BKE = None if self.routed_BKE is None else self.routed_BKE[:, :length]


@dataclass(eq=False)
class Cache:
    """Keys and values kept between calls: create `Cache(depth)` and pass it to every call of one run."""

    depth: int
    capacity: int | None = None  # number of tokens to allocate; None: grow as needed
    precision: CachePrecision = "float32"

    def __post_init__(self) -> None:
        self.layers = [LayerCache(self.capacity, self.precision) for _ in range(self.depth)]
        self.length = 0  # how many tokens it holds, padding included
        self._real: Tensor | None = None  # (B, capacity), or (B, K) without a capacity
        self.by_position = False  # see View.by_position

    @property
    def real_BK(self) -> Tensor | None:
        """Which of the cached tokens are not padding; None before the first call."""
        return None if self._real is None else self._real.narrow(1, 0, self.length)

    @real_BK.setter
    def real_BK(self, real_BK: Tensor | None) -> None:
        self._real, self.length = real_BK, 0 if real_BK is None else real_BK.shape[1]

    def add_tokens(self, real_BT: Tensor) -> None:
        """Count the tokens of a new call, before any layer writes; raise an error if they do not fit."""
        total = self.length + real_BT.shape[1]
        if self.capacity is not None and total > self.capacity:
            raise InputError(
                f"the cache has a capacity of {self.capacity} tokens, this call makes it {total}"
            )
        if self._real is not None and len(self._real) != len(real_BT):
            raise InputError(f"the cache holds {len(self._real)} rows, this call has {len(real_BT)}")
        if self.capacity is None:
            self.real_BK = real_BT if self._real is None else torch.cat([self._real, real_BT], dim=1)
            return
        if self._real is None:
            self._real = real_BT.new_zeros(len(real_BT), self.capacity)
        self._real.narrow(1, self.length, real_BT.shape[1]).copy_(real_BT)
        self.length = total

    def advance(self, real_BT: Tensor) -> None:
        """Count tokens whose keys and values were written without the tower, as by a replayed decode step."""
        self.add_tokens(real_BT)
        count = real_BT.shape[1]
        for layer in self.layers:
            layer.length += count

    @property
    def tensors(self) -> tuple[Tensor | None, KV | None]:
        """The keys of the first layer, its own and those of the encoder output.

        They are new objects after rows were added or removed, which is how a captured step notices.
        """
        layer = self.layers[0]
        return layer.kv and layer.kv[0], layer.cross_kv

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Select the given batch rows, in that order (beam search).

        `sources` are the rows of the encoder output to select, if rows share them (`States.rows_per_source`).
        """
        if self._real is None:
            return
        encoder_rows = rows if sources is None else sources
        changed = _changed(rows, len(self._real))
        sources_held = next(
            (len(layer.cross_kv[0]) for layer in self.layers if layer.cross_kv is not None), 0
        )
        same = not sources_held or is_identity(encoder_rows, sources_held)
        if changed is not None and not len(changed) and same:
            return
        for layer in self.layers:
            layer.reorder(rows, None if same else encoder_rows, changed)
        # With the same number of rows the tensor is reused: a captured decode step writes into it.
        self._real = self._real[rows] if changed is None else self._real.copy_(self._real[rows])

    def trim(self, length: int) -> None:
        """Drop everything after the first `length` tokens (speculative decoding)."""
        if not 0 <= length <= self.length:
            raise InputError(f"cannot trim a cache of {self.length} tokens to {length}")
        if length < self.length and any(layer.state is not None for layer in self.layers):
            raise InputError(
                "a layer of this model keeps a running state, which cannot be rolled back; start a new cache"
            )
        if self.capacity is None and self._real is not None:
            self._real = self._real[:, :length]
        self.length = length
        for layer in self.layers:
            layer.trim(length)


def is_identity(rows: Tensor, count: int) -> bool:
    """Whether `rows` selects all rows in their present order."""
    changed = _changed(rows, count)
    return changed is not None and not len(changed)


def _changed(rows: Tensor, count: int) -> Tensor | None:
    """Indices at which a different row is selected; None if the number of rows changes."""
    if len(rows) != count:
        return None
    return (rows != torch.arange(count, device=rows.device)).nonzero()[:, 0]


def _allocate(x_BHTE: Tensor, capacity: int) -> Tensor:
    batch, heads, _, width = x_BHTE.shape
    return x_BHTE.new_zeros(batch, heads, capacity, width)
