"""Normalisation: a stream of vectors in, the same stream with each vector rescaled out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..spec import Amplitude, Spec
from .cost import HiddenShape, PartCost
from .counting import count_cost
from .layers import one_call


class Norm(Spec):
    """How a vector is rescaled. All use the biased variance, with `eps` inside the root."""

    def build(self, width: int) -> nn.Module:
        raise NotImplementedError

    def cost(self, shape: HiddenShape) -> PartCost:
        size = (shape.batch, shape.length, shape.width)
        return count_cost(self, lambda: self.build(shape.width), lambda norm, x: norm(x), [size], shape)


@dataclass(frozen=True, kw_only=True)
class Layer(Norm):
    """Subtract the mean, divide by the standard deviation (Ba 2016)."""

    eps: Amplitude = 1e-5
    bias: bool = True

    def build(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, eps=self.eps, bias=self.bias)

    def cost(self, shape: HiddenShape) -> PartCost:
        """Mean and deviation of each vector are kept, in float32."""
        return PartCost(parameters=shape.width * (1 + self.bias), saved=2 * 4 * shape.vectors)


@dataclass(frozen=True, kw_only=True)
class NonParametric(Norm):
    """Layer norm with nothing to learn: no weight and no bias (OLMo)."""

    eps: Amplitude = 1e-5

    def build(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, eps=self.eps, elementwise_affine=False)

    def cost(self, shape: HiddenShape) -> PartCost:
        """Mean and deviation of each vector are kept, in float32."""
        return PartCost(saved=2 * 4 * shape.vectors)


@dataclass(frozen=True, kw_only=True)
class RMS(Norm):
    """Divide by the root of the mean square (Zhang 2019). `centred` stores weight - 1 (Gemma)."""

    eps: Amplitude = 1e-6
    centred: bool = False

    def build(self, width: int) -> nn.Module:
        return _RMS(width, self)

    def cost(self, shape: HiddenShape) -> PartCost:
        """The scaled vectors and one root each; of half precision the float32 copy is kept, too."""
        wide = 0 if shape.number >= 4 else 4 * shape.vectors * shape.width
        return PartCost(parameters=shape.width, saved=shape.bytes + 4 * shape.vectors + wide)


@dataclass(frozen=True, kw_only=True)
class NoNorm(Norm):
    """None: the vectors as they are (the attention of ModernBERT's first layer)."""

    def build(self, width: int) -> nn.Module:
        return nn.Identity()

    def cost(self, shape: HiddenShape) -> PartCost:
        """Its output is its input; the parts that have a norm count these as two tensors."""
        return PartCost(saved=-shape.bytes)


class _RMS(nn.Module):
    def __init__(self, width: int, spec: RMS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), 0.0 if spec.centred else 1.0))
        self.eps, self.centred = spec.eps, spec.centred

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps, self.centred)


@one_call
def rms_norm(x: Tensor, weight: Tensor, eps: float, centred: bool) -> Tensor:  # noqa: FBT001 (one_call)
    """x divided by the root of its mean square, times the weight, or times 1 + weight."""
    wide = widen(x)
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    if centred:  # Gemma multiplies before the cast to half precision, LLaMA after
        return (scaled * (1.0 + widen(weight))).type_as(x)
    return weight * scaled.type_as(x)


def widen(x: Tensor) -> Tensor:
    """Half precision as float32, anything else as it is: for the few sums that need the precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """Squash into (-cap, cap), smoothly (Gemma 2)."""
    return x if cap is None else cap * F.tanh(x / cap)
