"""Masks of texts behind virtual tokens: the rule of a text in; that of the text with its virtual tokens out.

Shape suffixes: B batch, Q query slots, K key slots, N slots of virtual tokens and texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .masks import Mask, SlidingWindow, segment_positions


@dataclass(frozen=True, eq=False)
class Behind(Mask):
    """A rule for a text that virtual tokens were put before, which all tokens may attend to.

    `slot_BN` is the slot of the text that each new slot has, below zero for a virtual token.
    """

    rule: Mask
    slot_BN: Tensor  # (1 or B, N)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        row = b if len(self.slot_BN) > 1 else torch.zeros_like(b)
        q_slot, k_slot = self.slot_BN[row, q], self.slot_BN[row, k]
        allowed = self.rule.allows(b, h, q_slot.clamp(min=0), k_slot.clamp(min=0))
        return allowed | (q_slot < 0) | (k_slot < 0)

    def globals(self, keys: int) -> Tensor | None:
        text = self.rule.globals(int(self.slot_BN.max()) + 1)
        if text is None:
            return None
        rows = max(len(text), len(self.slot_BN))
        slot_BN = self.slot_BN.expand(rows, -1)
        return text.expand(rows, -1).gather(1, slot_BN.clamp(min=0)) & (slot_BN >= 0)


class BehindPacked(Behind):
    """The same for packed texts, which share virtual tokens at the beginning of their row."""

    def segments(self) -> Tensor | None:
        segment_BT = self.rule.segments()
        assert segment_BT is not None
        virtual = segment_BT.new_zeros(len(segment_BT), self.count)
        return torch.cat([virtual, segment_BT], dim=1)

    def positions(self) -> Tensor:
        """Each text goes on where the virtual tokens end."""
        segment_BT = self.rule.segments()
        assert segment_BT is not None
        virtual = torch.arange(self.count, device=segment_BT.device).expand(len(segment_BT), -1)
        return torch.cat([virtual, self.count + segment_positions(segment_BT)], dim=1)

    @property
    def count(self) -> int:
        return int((self.slot_BN[0] < 0).sum())


@dataclass(frozen=True)
class BehindLead(Mask):
    """A rule of cross-attention, with virtual tokens before the keys that every query may attend to."""

    rule: Mask
    lead: int

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k < self.lead) | self.rule.allows(b, h, q, (k - self.lead).clamp(min=0))


@dataclass(frozen=True, eq=False)
class PositionWindow(Mask):
    """A window that counts positions, not slots: of packed texts behind virtual tokens that they share."""

    window: SlidingWindow
    q_pos: Tensor  # (1 or B, Q)
    k_pos: Tensor  # (1 or B, K)
    start: int  # the slot of the first query

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        q_row, k_row = (b if len(x) > 1 else torch.zeros_like(b) for x in (self.q_pos, self.k_pos))
        return self.window.allows(b, h, self.q_pos[q_row, q - self.start], self.k_pos[k_row, k])
