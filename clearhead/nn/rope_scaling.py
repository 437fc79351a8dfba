"""Rotary positions for texts longer than those of training: linear, dynamic NTK, YaRN, LongRoPE, Llama 3.

Shape suffixes: R half the number of rotated channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SpecError
from ..spec import Count, Positive
from .rope import Stretch, rotary_frequencies


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
        return rotary_frequencies(channels, wider, plain_R)


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
class LongRope(Stretch):
    """A factor for each pair of channels, found by search: one set up to the trained `length`, one beyond.

    Which set is used depends on the longest text of the run: see `DynamicNTK`.
    """

    length: Count  # the trained length
    short: tuple[Positive, ...]
    long: tuple[Positive, ...]
    factor: Positive = 1.0  # how many times the trained length the longest text is
    amplify: float | None = None  # factor on the rotated vectors; None: from `factor`, as in the paper

    @property
    def amplitude(self) -> float:
        if self.amplify is not None:
            return self.amplify
        return math.sqrt(1 + math.log(self.factor) / math.log(self.length)) if self.factor > 1 else 1.0

    def check_channels(self, channels: int) -> None:
        for name in ("short", "long"):
            if 2 * (count := len(getattr(self, name))) != channels:
                raise SpecError(
                    f"LongRope.{name} has {count} factors; {channels} channels are rotated, in pairs, and "
                    f"need {channels // 2}"
                )

    def frequencies(self, plain_R: Tensor, theta: float, length: int) -> Tensor:
        factors = self.long if length > self.length else self.short
        return plain_R / torch.tensor(factors, dtype=plain_R.dtype, device=plain_R.device)


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
