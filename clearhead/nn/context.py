"""The context of a call, which every layer gets with the hidden states; `States`, the output of a tower."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .cache import LayerCache
from .masks import Everyone, Mask
from .positions import BoundPositions
from .tap import OFF, Tap
from .view import View

if TYPE_CHECKING:
    from .virtual_tokens import LayerPrefix


@dataclass(frozen=True)
class States:
    """The output of a tower: hidden states, and the text that each token belongs to."""

    x_BTD: Tensor
    segment_BT: Tensor | None = None  # below zero = padding; None = one real text throughout
    rows_per_source: int = 1  # consecutive decoder rows that share each row of an encoder output (beams)
    whole: States | None = None  # the same with the states of virtual tokens, where there are some

    @property
    def real_BT(self) -> Tensor | None:
        return None if self.segment_BT is None else self.segment_BT >= 0


@dataclass(frozen=True)
class Context:
    """What a layer may need to know about the call."""

    view: View  # which queries may attend to which keys
    positions: BoundPositions
    encoder_output: Tensor | None = None  # (B, K, D), what cross-attention attends to
    encoder_view: View | None = None
    layer: int = 0  # index of the layer among those of its tower that have weights of their own
    prefix: LayerPrefix | None = None  # keys and values before those of the tokens
    cross_prefix: LayerPrefix | None = None  # and before those of the encoder output
    source: Tensor | None = None  # (B, K, D), what keys and values come from, where not from the stream
    cache: LayerCache | None = None
    tap: Tap = OFF

    def at(self, name: str) -> Context:
        """The same call, one module further down."""
        return self if self.tap is OFF else replace(self, tap=self.tap.at(name))


def context_of(x_BTD: Tensor, mask: Mask | None = None) -> Context:
    """The context of a layer that is called by itself: no positions, no cache, no taps."""
    slots = torch.arange(x_BTD.shape[1], device=x_BTD.device)[None]
    return Context(View(mask or Everyone(), len(x_BTD), slots, slots), BoundPositions())
