"""Rotary positions (Su 2021): queries and keys are rotated by their position, so scores see only offsets.

The ways to stretch it beyond the length a model was trained for are in `rope_scaling`.
Shape suffixes: B batch, H heads, T tokens, E head width, R half the number of rotated channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import SpecError
from ..spec import AboveOne, Dims, Rate, Spec
from .cost import HiddenShape, PartCost, PositionCost
from .layers import one_call
from .positions import BoundPositions, Positions, PositionScheme
from .view import View


class Stretch(Spec):
    """How the frequencies change for long texts: `frequencies(plain, length)`, and an amplitude."""

    def frequencies(self, plain_R: Tensor, theta: float, length: int) -> Tensor:
        raise NotImplementedError

    @property
    def amplitude(self) -> float:
        return 1.0

    def check_channels(self, channels: int) -> None:
        """Raise a one-line error if it is not for this number of rotated channels."""


@dataclass(frozen=True, kw_only=True)
class Rope(Positions):
    """`pairing` says which channels rotate together: i with i + half (LLaMA), or neighbours (GPT-J)."""

    theta: AboveOne = 10000.0
    fraction: Rate = 1.0  # how much of each head is rotated (GPT-NeoX: a quarter)
    pairing: Literal["halves", "neighbours"] = "halves"
    stretch: Stretch | None = None

    def build(self, dims: Dims, width: int) -> PositionScheme:
        rotated = int(dims.head_dim * self.fraction)
        if rotated < 2 or rotated % 2:
            raise SpecError(
                f"Rope rotates pairs of channels; {self.fraction} of a head of {dims.head_dim} is {rotated}"
            )
        if self.stretch is not None:
            self.stretch.check_channels(rotated)
        return _Rope(self, rotated)

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        """One table of cosines and one of sines for all layers."""
        tables = 2 * shape.number * shape.length * int(dims.head_dim * self.fraction)
        return PositionCost(tower=PartCost(saved=tables), joined=self.fraction < 1)


class _Rope(PositionScheme):
    def __init__(self, spec: Rope, rotated: int) -> None:
        super().__init__()
        self.spec, self.rotated = spec, rotated

    def bind(self, view: View) -> BoundPositions:
        return _BoundRope(self.spec, self.rotated, view)


class _BoundRope(BoundPositions):
    def __init__(self, spec: Rope, rotated: int, view: View) -> None:
        self.spec, self.rotated, self.view = spec, rotated, view
        self._angles: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    def rotate_q(self, q_BHQE: Tensor) -> Tensor:
        return self._rotate(q_BHQE)

    def rotate_k(self, k_BHTE: Tensor) -> Tensor:
        return self._rotate(k_BHTE)

    def _rotate(self, x_BHTE: Tensor) -> Tensor:
        if x_BHTE.dtype not in self._angles:
            self._angles[x_BHTE.dtype] = self._cos_sin(x_BHTE)
        return rotate_pairs(x_BHTE, *self._angles[x_BHTE.dtype], self.spec.pairing)

    def _cos_sin(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Angles need float32 even where the stream is half precision."""
        exact = torch.float64 if like.dtype == torch.float64 else torch.float32
        freq_R = rotary_frequencies(self.rotated, self.spec.theta, like.new_zeros((), dtype=exact))
        size = 1.0
        if self.spec.stretch is not None:
            freq_R = self.spec.stretch.frequencies(freq_R, self.spec.theta, self.view.longest)
            size = self.spec.stretch.amplitude
        angle = self.view.q_pos[:, None, :, None].to(exact) * freq_R
        halves = self.spec.pairing == "halves"
        angle = torch.cat([angle, angle], -1) if halves else angle.repeat_interleave(2, -1)
        return (angle.cos() * size).to(like.dtype), (angle.sin() * size).to(like.dtype)


@one_call
def rotate_pairs(x_BHTE: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """Pairs of channels rotated by angles (1 or B, 1, T, rotated channels); further channels stay."""
    rotated = cos.shape[-1]
    first, rest = x_BHTE[..., :rotated], x_BHTE[..., rotated:]
    if pairing == "halves":
        a, b = first.chunk(2, dim=-1)
        spun = torch.cat([-b, a], dim=-1)
    else:
        a, b = first[..., 0::2], first[..., 1::2]
        spun = torch.stack([-b, a], dim=-1).flatten(-2)
    first = first * cos + spun * sin
    return first if rest.shape[-1] == 0 else torch.cat([first, rest], dim=-1)


def rotary_frequencies(channels: int, theta: float, like: Tensor) -> Tensor:
    exponent = torch.arange(0, channels, 2, device=like.device).to(like.dtype) / channels
    return 1.0 / theta**exponent
