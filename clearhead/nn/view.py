"""A view: one mask applied to one call. A rule and positions in; the cheapest form a kernel can use out.

Shape suffixes: B batch, H heads, Q query slots, K key slots.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from .masks import (
    Causal,
    CrossDocuments,
    Documents,
    Everyone,
    Globals,
    Mask,
    Padding,
    SlidingWindow,
)
from .virtual_masks import PositionWindow


@dataclass(frozen=True)
class Outline:
    """The parts of a mask that are known without rendering it."""

    causal: bool = False
    window: tuple[int, int] | None = None  # at most this far back, and ahead
    padding: bool = False
    packed: bool = False  # several texts in a row, which do not see each other
    more: bool = False  # other rules, which have to be rendered

    @property
    def is_window(self) -> bool:
        """Nothing but a window, causal or not."""
        return self.window is not None and not (self.padding or self.packed or self.more)


@dataclass(frozen=True, eq=False)
class View:
    """A mask applied to one call, in the cheapest form that a kernel can use."""

    mask: Mask
    batch: int
    q_pos: Tensor  # (1 or B, Q) positions of the queries
    k_pos: Tensor  # (1 or B, K) positions of the keys, cached ones first
    start: int = 0  # the slot of the first query
    room: int = 0  # how many more tokens the cache has room for, if it has a capacity
    is_cross: bool = False  # keys are of another sequence than queries: an encoder's, or one not yet pooled
    q_types: Tensor | None = None  # (B, Q) segment types, for position schemes that compare them
    k_types: Tensor | None = None  # (B, K)
    by_position: bool = False  # a window counts positions, not slots: virtual tokens stand apart from texts
    step: int = 1  # positions differ by multiples of it: the number of tokens that were pooled into one
    _restricted: dict[Mask, View] = field(default_factory=dict, repr=False)
    _attn_masks: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    @property
    def queries(self) -> int:
        return self.q_pos.shape[1]

    @property
    def keys(self) -> int:
        return self.k_pos.shape[1]

    @cached_property
    def longest(self) -> int:
        """The length of the longest text of this run, tokens still to come included."""
        if self.k_pos.device.type == "meta":  # positions have no values: use the number of slots
            return self.keys + self.room
        return int(self.k_pos.max()) + 1 + self.room

    @cached_property
    def globals_BK(self) -> Tensor | None:
        """(1 or B, K) flags of the global tokens; `None` if the mask has none."""
        flags = self.mask.globals(self.keys)
        return None if flags is None else flags.to(self.k_pos.device)

    @cached_property
    def real_BK(self) -> Tensor | None:
        """(B, K) flags of the tokens that are not padding; `None` if the mask has no padding."""
        segment_BK = self.mask.segments()
        return None if segment_BK is None else segment_BK >= 0

    def allows(self, q: Tensor, k: Tensor, row_B: Tensor | None = None) -> Tensor | None:
        """Whether the queries in these slots may attend to the keys in those; `None` when all may.

        For sparse kernels, which compute few pairs. The index tensors broadcast, (1 or B, 1 or H, ...) each.
        `row_B` are the batch rows that they refer to, if not all in order.
        """
        if self.is_open:
            return None
        rows = torch.arange(self.batch, device=q.device) if row_B is None else row_B
        b = rows.reshape(-1, *(1,) * (q.ndim - 1))
        return self.mask.allows(b, torch.zeros_like(b), q, k)

    def restrict(self, rule: Mask) -> View:
        """This view with one more local rule. Layers with the same rule share the result and its mask."""
        if isinstance(rule, Everyone):
            return self
        if rule not in self._restricted:
            local: Mask = rule
            if self.by_position and isinstance(rule, SlidingWindow):
                local = PositionWindow(rule, self.q_pos, self.k_pos, self.start)
            local = local if self.globals_BK is None else local | Globals(self.globals_BK)
            self._restricted[rule] = replace(self, mask=self.mask & local, _restricted={}, _attn_masks={})
        return self._restricted[rule]

    @property
    def is_open(self) -> bool:
        """All pairs are allowed; also for a single newest token under a causal rule."""
        newest = self.queries == 1 and self.start + 1 == self.keys
        return isinstance(self.mask, Everyone) or (newest and isinstance(self.mask, Causal))

    @property
    def is_causal(self) -> bool:
        """Exactly the triangle, so that a kernel may use its built-in one and no tensor is made."""
        square = self.start == 0 and self.queries == self.keys
        return square and isinstance(self.mask, Causal)

    @cached_property
    def outline(self) -> Outline:
        """What the mask consists of, for kernels that never render it."""
        parts = self.mask.parts()
        windows = [part for part in parts if isinstance(part, SlidingWindow)]
        known = (Causal, SlidingWindow, Padding, Documents, CrossDocuments)
        return Outline(
            causal=any(isinstance(part, Causal) for part in parts),
            window=(min(w.left for w in windows), min(w.right for w in windows)) if windows else None,
            padding=any(isinstance(part, Padding) for part in parts),
            packed=any(isinstance(part, Documents | CrossDocuments) for part in parts),
            more=not all(isinstance(part, known) for part in parts),
        )

    @cached_property
    def dense(self) -> Tensor | None:
        """(1 or B, 1 or H, Q, K) boolean, rendered once; `None` when all pairs are allowed."""
        if self.is_open:
            return None
        at = self.q_pos.device
        b = torch.arange(self.batch, device=at)[:, None, None, None]
        q = torch.arange(self.start, self.start + self.queries, device=at)[None, None, :, None]
        k = torch.arange(self.keys, device=at)[None, None, None, :]
        allowed = self.mask.allows(b, torch.zeros_like(b), q, k)
        return allowed.expand(*allowed.shape[:2], self.queries, self.keys)

    def attn_mask(self, bias: Tensor | None) -> Tensor | None:
        """The `attn_mask` of torch's fused call: the boolean mask, or the bias with -inf where blocked."""
        if bias is None or self.dense is None:
            return self.dense if bias is None else bias
        known = self._attn_masks.get(id(bias))
        if known is not None:
            return known[1]
        joined = bias.masked_fill(~self.dense, float("-inf"))
        if not joined.requires_grad:  # a recomputed layer must record the same graph again
            self._attn_masks[id(bias)] = (bias, joined)  # the pair keeps the bias, and so its id, alive
        return joined
