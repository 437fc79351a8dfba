"""Int8 layers: a float matrix in; a layer out that needs a quarter of the memory and multiplies faster.

Weights are quantized to 255 steps per output channel, inputs to 255 steps per row. The result for a row does
not depend on the other rows of the batch. Inputs are quantized in one of three ways:

    symmetric    steps on both sides of zero: the fewest torch calls for many rows
    asymmetric   steps between the least and the greatest number of a row: one call for a single row
    split        in two parts: the rounding error is quantized and multiplied as well, so nothing is lost

The product is a private operator of torch, used in this file only. If it is missing (another processor or
another version of torch), weights are converted to floats for each product, with one warning.
Shape suffixes: B batch, T tokens, I inputs, O outputs, V vocabulary, D width.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from ..errors import InputError

# Without VNNI instructions the processor adds pairs of products in 16 bits; 7-bit inputs cannot overflow it.
STEPS = 127 if torch.cpu._is_vnni_supported() else 63
INT8_LEVELS = 2 * STEPS + 1
LEAST = 1e-30  # smallest divisor: a row of zeros stays zeros
MUCH = 2**17  # numbers: half a megabyte, from which on writing them takes longer than reading them twice
# Numbers that are tensors already: torch takes longer to wrap a Python number than to multiply a row by it.
MANY, FINER = torch.tensor(float(STEPS)), torch.tensor(2.0 * STEPS)

InputQuantization = Literal["symmetric", "asymmetric", "split"]


def quantize_rows(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """The int8 matrix and one scale per row; their product is the matrix, to within half a step."""
    top_O = weight_OI.abs().amax(1).float().clamp(min=LEAST)
    scale_O = top_O / 127
    return (weight_OI / scale_O[:, None]).round_().to(torch.int8).contiguous(), scale_O


class Int8Module(nn.Module):
    """A layer with int8 weights, for inference only: switching it to training mode is an error."""

    quantized_bytes: int = 0  # size of the int8 weights, their scales and the bias

    def train(self, mode: bool = True) -> Int8Module:  # noqa: FBT001, FBT002 (torch's own signature)
        if mode:
            raise InputError(
                "an int8 model cannot be trained; load it without quantize, train, then quantize"
            )
        super().train(mode)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Int8Module:  # noqa: FBT001, FBT002
        """What `.to` calls. Packed matrices are not buffers: they would stay behind."""
        if (device := fn(torch.empty(0)).device).type != "cpu":
            raise InputError(
                f"an int8 model computes on the CPU only; given {device}: load it there without quantize"
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


class Int8Linear(Int8Module):
    """Replaces a linear layer. `of` returns the fast variant if this machine supports it."""

    bias: Tensor | None

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight_OI.shape
        self.quantized_bytes = self.out_features * (self.in_features + (4 if bias_O is None else 8))
        self.register_buffer("bias", None if bias_O is None else bias_O.detach().float())

    @staticmethod
    def of(weight_OI: Tensor, bias_O: Tensor | None, inputs: InputQuantization = "symmetric") -> Int8Linear:
        if weight_OI.device.type != "cpu" or not can_pack():
            return _DequantizedLinear(weight_OI.detach(), bias_O)
        if inputs == "asymmetric":
            return _AsymmetricLinear(weight_OI.detach(), bias_O)
        return _SymmetricLinear(weight_OI.detach(), bias_O, inputs)

    def forward(self, x_BTI: Tensor) -> Tensor:
        x = x_BTI.detach() if x_BTI.requires_grad else x_BTI  # rounding has no gradient
        y = self.product(x if x.dtype == torch.float32 else x.float())
        return y if y.dtype == x.dtype else y.type_as(x)

    def product(self, x_BTI: Tensor) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class _SymmetricLinear(Int8Linear):
    """Int8 times int8, symmetric or split. The matrix is stored once, in the layout of the operator."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, inputs: InputQuantization) -> None:
        super().__init__(weight_OI, bias_O)
        weight, scale_O = quantize_rows(weight_OI)
        split = inputs == "split"
        self._matrix = _pack(weight, scale_O / STEPS if split else scale_O)
        self._multiply = _multiply_split if split else _multiply

    def product(self, x_BTI: Tensor) -> Tensor:
        # For a single row each line of Python costs as much as a tenth of the product: use as few as
        # possible. A row of zeros becomes 0/0, which is rounded to some integer, and that times zero is zero.
        top_BT1 = _top(x_BTI)
        y = self._multiply(x_BTI / top_BT1, self._matrix)
        return y.mul_(top_BT1) if self.bias is None else torch.addcmul(self.bias, y, top_BT1, out=y)


class _AsymmetricLinear(Int8Linear):
    """Int8 times int8, with the steps of each row fitted to its range."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__(weight_OI, bias_O)
        weight, scale_O = quantize_rows(weight_OI)
        self._matrix = _pack(weight, scale_O, self.bias)
        self._sum_O = -weight.sum(1) * scale_O  # correction per step of a row's zero point
        self.quantized_bytes += 4 * self.out_features

    def product(self, x_BTI: Tensor) -> Tensor:
        return asymmetric_product(x_BTI, self._matrix, self.bias, self._sum_O)


def asymmetric_product(x_BTI: Tensor, matrix: Any, bias_O: Tensor | None, sum_O: Tensor) -> Tensor:
    """The product with the steps of each row fitted to its range.

    Its torch calls depend on the numbers in the input, so it must not be recorded call by call. It dispatches
    through torch's `__torch_function__` protocol and thereby is one call for a TorchFunctionMode: that is the
    documented way to be captured as one call of a decode step (`clearhead/generate/replay/capture.py`).
    """
    if has_torch_function_unary(x_BTI):
        dispatched: Tensor = handle_torch_function(asymmetric_product, (x_BTI,), x_BTI, matrix, bias_O, sum_O)
        return dispatched
    if x_BTI.numel() > x_BTI.shape[-1]:
        return _asymmetric_rows(x_BTI, matrix, bias_O, sum_O)
    low, high = x_BTI.aminmax()
    least, most = min(low.item(), 0.0), max(high.item(), 0.0)
    step = max((most - least) / INT8_LEVELS, LEAST)
    if math.isnan(step):  # the input has a NaN; so will the output
        return _asymmetric_rows(x_BTI, matrix, bias_O, sum_O)
    return _call(x_BTI, step, round(-least / step), matrix)


def _asymmetric_rows(x_BTI: Tensor, matrix: Any, bias_O: Tensor | None, sum_O: Tensor) -> Tensor:
    """As for a single row, with the same integers. The operator supports one step size for all rows, so the
    rows are quantized here.

    The operator uses a fused multiply-add; float64 gives the same result.
    """
    low, high = x_BTI.amin(-1, keepdim=True).numpy(), x_BTI.amax(-1, keepdim=True).numpy()
    least, most = np.minimum(low, 0.0, dtype=np.float64), np.maximum(high, 0.0, dtype=np.float64)
    exact = np.maximum((most - least) / INT8_LEVELS, LEAST)
    step, zero = exact.astype(np.float32), np.rint(-least / exact)
    inverse = torch.from_numpy((np.float32(1) / step).astype(np.float64))
    whole = torch.addcmul(torch.from_numpy(zero), x_BTI.double(), inverse).float()
    y = _call(whole, 1.0, 0, matrix)
    if bias_O is not None:  # the operator added it before the rows are rescaled
        y = y.sub_(bias_O)
    y = y.addcmul_(torch.from_numpy(zero.astype(np.float32)), sum_O).mul_(torch.from_numpy(step))
    return y if bias_O is None else y.add_(bias_O)


class _DequantizedLinear(Int8Linear):
    """Int8 weights, converted to floats for every product: saves memory on any machine, but no time."""

    weight: Tensor
    scale: Tensor

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__(weight_OI, bias_O)
        weight, scale = quantize_rows(weight_OI)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def product(self, x_BTI: Tensor) -> Tensor:
        y = F.linear(x_BTI, self.weight.float()) * self.scale
        return y if self.bias is None else y + self.bias


class Int8Table(Int8Module):
    """Replaces an embedding table: int8 rows, each with a scale."""

    weight: Tensor
    scale: Tensor

    def __init__(self, weight_VD: Tensor) -> None:
        super().__init__()
        self.num_embeddings = len(weight_VD)
        self.quantized_bytes = weight_VD.numel() + 4 * len(weight_VD)
        weight, scale = quantize_rows(weight_VD.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def forward(self, ids_BT: Tensor) -> Tensor:
        return self.weight[ids_BT] * self.scale[ids_BT][..., None]


@cache
def can_pack() -> bool:
    """Whether torch has the int8 product on this machine, and it gives the expected result."""
    x, weight = torch.tensor([[-3.0, STEPS]]), torch.tensor([[1.0, 0.25], [-1.0, 1.0]])
    try:
        answer = _multiply(x / STEPS, _pack(*quantize_rows(weight))) * STEPS
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = str(error).strip().split("\n")[0][:100]
    else:
        if torch.allclose(answer, x @ weight.T, rtol=0.01):
            return True
        reason = "its result is wrong"
    logging.getLogger("clearhead.tune").warning(
        "no fast int8 product on this machine (%s): weights are stored in int8 and multiplied as floats",
        reason,
    )
    return False


def _top(x_BTI: Tensor) -> Tensor:
    """The largest absolute value of each row: few calls for few rows, no copy for many."""
    if x_BTI.numel() < MUCH:
        return x_BTI.abs().amax(-1, keepdim=True)
    return torch.maximum(x_BTI.amax(-1, keepdim=True), -x_BTI.amin(-1, keepdim=True))


def _pack(weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None = None) -> Any:
    zeros_O = torch.zeros(len(scale_O), dtype=torch.long)
    with warnings.catch_warnings():
        # torch deprecates these tensors. When it removes them, `can_pack` returns False and its test fails.
        warnings.filterwarnings("ignore", message=".*quantize")
        matrix = torch._make_per_channel_quantized_tensor(weight_OI, scale_O.double(), zeros_O, 0)
    return torch.ops.quantized.linear_prepack(matrix, bias_O)


def _multiply(parts_BTI: Tensor, matrix: Any, step: float = 1 / STEPS) -> Tensor:
    """The product of inputs from -1 to 1, which the operator rounds to whole steps."""
    return _call(parts_BTI, step, STEPS + 1, matrix)


def _call(x_BTI: Tensor, step: float, zero: int, matrix: Any) -> Tensor:
    """The operator: inputs rounded to multiples of `step`, with this zero point, times the matrix."""
    # Without `_op`, parsing the arguments takes ten microseconds, a third of a product of one row.
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default._op
    answer: Tensor = multiply(x_BTI, step, zero, matrix)
    return answer


def _multiply_split(parts_BTI: Tensor, matrix: Any) -> Tensor:
    """Twice as many bits: the whole steps and, as further rows of the same product, the rounding errors.

    The result is in steps, not in parts; the scales of this matrix account for that.
    """
    steps = parts_BTI.mul_(MANY)
    whole = steps.round()
    left = steps.sub_(whole).mul_(FINER)
    coarse, fine = _multiply(torch.cat((whole, left)), matrix, step=1.0).chunk(2)
    return torch.add(coarse, fine, alpha=0.5 / STEPS)
