"""One call of a part of the core: plain tensors in, the context that its modules expect out."""

from __future__ import annotations

import torch
from torch import Tensor

from ...nn import OFF, BoundPositions, Context, Everyone, Mask, Tap, View


class Patterns(dict[str, Tensor]):
    """Keeps the attention weights of a call, by address: before dropout, rows that sum to one."""

    def tap(self) -> Tap:
        return Tap("*pattern", self._keep)

    def _keep(self, address: str, weights_BHQK: Tensor) -> Tensor:
        self[address] = weights_BHQK
        return weights_BHQK


def view(rule: Mask, batch: int, queries: int, keys: int, device: torch.device) -> View:
    q_pos, k_pos = (torch.arange(count, device=device)[None] for count in (queries, keys))
    return View(rule, batch, q_pos, k_pos)


def context(
    x_BTD: Tensor,
    rule: Mask | None = None,
    *,
    encoder_output_BKD: Tensor | None = None,
    source_rule: Mask | None = None,
    tap: Tap = OFF,
) -> Context:
    """What a block needs besides its stream. No positions here: they are already added to the stream."""
    batch, length = x_BTD.shape[:2]
    here = view(rule or Everyone(), batch, length, length, x_BTD.device)
    if encoder_output_BKD is None:
        return Context(here, BoundPositions(), tap=tap)
    there = view(source_rule or Everyone(), batch, length, encoder_output_BKD.shape[1], x_BTD.device)
    return Context(here, BoundPositions(), encoder_output=encoder_output_BKD, encoder_view=there, tap=tap)
