"""Fourier mixing (Lee-Thorp 2021): the real part of a discrete Fourier transform over tokens and channels.

Nothing is learned: every token is mixed with every other one in the same way, whatever they are, and only the
feed-forward layers are trained. A transform has no weights that could be zero for padding, so each text is
transformed by itself, without its padding. A token changes all others: it is for encoders.
Shape suffixes: B batch, H one head, N texts of one length, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..attention import TokenMixer
from ..context import Context
from ..cost import HiddenShape, PartCost, PositionCost
from ..kernels.kernel import Need, needs, raise_unsupported
from ..kernels.sequences import by_length
from ..multi_head import TokenMixerModule
from ..norm import widen
from ..tap import OFF


@dataclass(frozen=True, kw_only=True)
class Fourier(TokenMixer):
    def build(self, width: int) -> TokenMixerModule:
        return _Fourier()

    def cost(self, shape: HiddenShape, *, causal: bool, positions: PositionCost) -> PartCost:
        """No parameters, no matrix products; being linear, it keeps nothing, not even its input."""
        return PartCost(saved=-shape.bytes)


class _Fourier(TokenMixerModule):
    SITES = ("out",)
    supports: ClassVar[frozenset[Need]] = frozenset({"padding", "documents"})

    def require(self, needs: AbstractSet[Need]) -> None:
        raise_unsupported("Fourier", needs - self.supports, {}, "choose Attention, which can")

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        self.require(needs(ctx.view, None, OFF))
        if ctx.view.is_open:
            return ctx.tap("out", _transform(x_BTD))
        mixed_BHTD = torch.zeros_like(x_BTD)[:, None]
        for texts in by_length(ctx.view):
            mixed_BHTD = texts.put(mixed_BHTD, _transform(texts.take(x_BTD[:, None])))
        return ctx.tap("out", mixed_BHTD[:, 0])


def _transform(x: Tensor) -> Tensor:
    mixed: Tensor = torch.fft.fft2(widen(x)).real
    return mixed.type_as(x)
