"""Linear layers in training: inputs, weight and bias in, x W' + b out, by the faster of two libraries.

Here is also what a product of `clearhead.engine` offers, which layers may have for inference.

torch computes float32 products by MKL, which leaves AVX-512 unused on processors that are not Intel's. There
oneDNN, which torch brings for bfloat16, takes less than half the time (docs/log.md has the figures).

Shape suffixes: N vectors, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..device import has_slow_mkl

SMALLEST_PRODUCT = 2**21  # multiplications; below, the microseconds that a call of oneDNN takes are too many


class LayerProduct(Protocol):
    """The product of a layer, computed by `clearhead.engine`."""

    def fits(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        """Whether it may stand for `F.linear`: no gradient is wanted, and the weights have not changed."""

    def __call__(self, x: Tensor) -> Tensor: ...

    @property
    def trains_adapters(self) -> bool:
        """Whether training computes with the quantized weights, too: they are frozen, and adapters learn."""

    def dequantized(self) -> Tensor:
        """The matrix it multiplies by, in float32."""


def training_linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """As `F.linear`; on some CPUs float32 is rounded in another order."""
    if _is_for_onednn(x, weight_OI):
        apply: Any = OneDnnLinear.apply
        product: Tensor = apply(x, weight_OI, bias_O)
        return product
    return F.linear(x, weight_OI, bias_O)


def training_linear_frozen(x: Tensor, matrix: Callable[[], Tensor], bias_O: Tensor | None) -> Tensor:
    """As `training_linear` with weights that are not trained: they are made when needed, and kept nowhere."""
    apply: Any = FrozenLinear.apply
    product: Tensor = apply(x, matrix, bias_O)
    return product


def _is_for_onednn(x: Tensor, weight_OI: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight_OI.dtype == torch.float32
        and x.ndim > 1
        and x.numel() * len(weight_OI) >= SMALLEST_PRODUCT
        and not torch.is_autocast_enabled("cpu")
        and has_slow_mkl()
    )


class OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(fx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        fx.save_for_backward(x, weight_OI)
        return _product(x, weight_OI, bias_O)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(fx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight_OI = fx.saved_tensors
        grad_NO, x_NI = grad.flatten(0, -2), x.flatten(0, -2)
        for_x, for_weight, for_bias = fx.needs_input_grad
        return (
            _product(grad, weight_OI.t()) if for_x else None,
            _transposed_product(grad_NO, x_NI) if for_weight else None,
            grad_NO.sum(0) if for_bias else None,
        )


class FrozenLinear(torch.autograd.Function):
    """x W' + b with gradients for x and b alone; of a quantized matrix one float copy exists at a time."""

    @staticmethod
    def forward(fx: Any, x: Tensor, matrix: Callable[[], Tensor], bias_O: Tensor | None) -> Tensor:
        fx.matrix, fx.number = matrix, x.dtype
        return training_linear(x, matrix().to(x.dtype), None if bias_O is None else bias_O.to(x.dtype))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(fx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        for_x, _, for_bias = fx.needs_input_grad
        weight_OI = fx.matrix().to(grad.dtype) if for_x else None
        return (
            None if weight_OI is None else training_linear(grad, weight_OI.t(), None).to(fx.number),
            None,
            grad.flatten(0, -2).sum(0) if for_bias else None,
        )


def _transposed_product(grad_NO: Tensor, x_NI: Tensor) -> Tensor:
    """(O, I). The first factor is copied to be contiguous, so the narrower one is put first."""
    if grad_NO.shape[1] > x_NI.shape[1]:
        return _product(x_NI.t(), grad_NO.t()).t().contiguous()
    return _product(grad_NO.t(), x_NI.t())


def _product(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_OI, bias_O, "none", [], "")
    return result
