"""Rotary positions (Su 2021): queries and keys are rotated by their position, so scores see only offsets.

Also the ways to extend it beyond the length a model was trained for.
Shape suffixes: B batch, H heads, T tokens, E head width, R half the number of rotated channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import SpecError
from ..spec import AboveOne, Count, Dims, Positive, Rate, Spec
from .cost import HiddenShape, PartCost, PositionCost
from .positions import BoundPositions, Positions, PositionScheme
from .view import View


class Stretch(Spec):
    """How the frequencies change for long texts: `frequencies(plain, length)`, and an amplitude."""

    def frequencies(self, plain_R: Tensor, theta: float, length: int) -> Tensor:
        raise NotImplementedError

    @property
    def amplitude(self) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class LinearStretch(Stretch):
    """Positions divided by a factor (Chen 2023)."""

    factor: Positive

    def frequencies(self, plain_R: Tensor, theta: float, length: int) -> Tensor:
        return plain_R / self.factor


@dataclass(frozen=True, kw_only=True)
class DynamicNTK(Stretch):
    """A larger theta as soon as the text is longer than the trained `length`; it grows with the text.

    The rotation depends on the longest text of the run, so what was cached under a shorter one stays as it
    was. A cache with a capacity fixes the length in advance, and decoding then equals one full pass.
    """

    factor: Positive
    length: Count

    def frequencies(self, plain_R: Tensor, theta: float, length: int) -> Tensor:
        channels = 2 * len(plain_R)
        if length <= self.length or channels <= 2:
            return plain_R
        grown = self.factor * length / self.length - (self.factor - 1)
        wider = theta * grown ** (channels / (channels - 2))
        return _frequencies(channels, wider, plain_R)


@dataclass(frozen=True, kw_only=True)
class Yarn(Stretch):
    """Slow channels are divided, fast ones left alone, with a ramp between (Peng 2023)."""

    factor: Positive
    length: Count  # the trained length
    fast: Positive = 32.0
    slow: Positive = 1.0
    rounded: bool = True  # the ramp's ends on whole channels
    amplify: float | None = None  # factor on the rotated vectors; None is the paper's 0.1 ln(factor) + 1

    @property
    def amplitude(self) -> float:
        if self.amplify is not None:
            return self.amplify
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def frequencies(self, plain_R: Tensor, theta: float, length: int) -> Tensor:
        channels = 2 * len(plain_R)

        def turning(times: float) -> float:
            """The channel that rotates this many times within the trained length."""
            return channels * math.log(self.length / (times * 2 * math.pi)) / (2 * math.log(theta))

        low, high = turning(self.fast), turning(self.slow)
        if self.rounded:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, channels - 1)
        ramp = (torch.arange(len(plain_R), device=plain_R.device) - low) / max(high - low, 1e-3)
        divided = ramp.clamp(0, 1).type_as(plain_R)
        return plain_R / self.factor * divided + plain_R * (1 - divided)


@dataclass(frozen=True, kw_only=True)
class Llama3(Stretch):
    """Long waves are divided, short ones left alone, smoothly between (Llama 3.1)."""

    factor: Positive
    length: Count  # the trained length
    low: float = 1.0
    high: float = 4.0

    def check(self) -> None:
        if self.low >= self.high:
            raise SpecError(f"Llama3(low={self.low}, high={self.high}): low must be below high")

    def frequencies(self, plain_R: Tensor, theta: float, length: int) -> Tensor:
        wavelength = 2 * math.pi / plain_R
        smooth = ((self.length / wavelength - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - smooth) * plain_R / self.factor + smooth * plain_R


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
        cos, sin = self._angles[x_BHTE.dtype]
        first, rest = x_BHTE[..., : self.rotated], x_BHTE[..., self.rotated :]
        if self.spec.pairing == "halves":
            a, b = first.chunk(2, dim=-1)
            spun = torch.cat([-b, a], dim=-1)
        else:
            a, b = first[..., 0::2], first[..., 1::2]
            spun = torch.stack([-b, a], dim=-1).flatten(-2)
        first = first * cos + spun * sin
        return first if rest.shape[-1] == 0 else torch.cat([first, rest], dim=-1)

    def _cos_sin(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Angles need float32 even where the stream is half precision."""
        exact = torch.float64 if like.dtype == torch.float64 else torch.float32
        freq_R = _frequencies(self.rotated, self.spec.theta, like.new_zeros((), dtype=exact))
        size = 1.0
        if self.spec.stretch is not None:
            freq_R = self.spec.stretch.frequencies(freq_R, self.spec.theta, self.view.longest)
            size = self.spec.stretch.amplitude
        angle = self.view.q_pos[:, None, :, None].to(exact) * freq_R
        halves = self.spec.pairing == "halves"
        angle = torch.cat([angle, angle], -1) if halves else angle.repeat_interleave(2, -1)
        return (angle.cos() * size).to(like.dtype), (angle.sin() * size).to(like.dtype)


def _frequencies(channels: int, theta: float, like: Tensor) -> Tensor:
    exponent = torch.arange(0, channels, 2, device=like.device).to(like.dtype) / channels
    return 1.0 / theta**exponent
