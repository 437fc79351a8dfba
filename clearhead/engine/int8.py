"""Int8 products: a float matrix in; a product out that needs a quarter of the memory and multiplies faster.

Weights are quantized to 255 steps per output channel, inputs to 255 steps per row. The result for a row does
not depend on the other rows of the batch. Inputs are quantized in one of three ways:

    symmetric    steps on both sides of zero: the fewest torch calls for many rows
    asymmetric   steps between the least and the greatest number of a row: one call for a single row
    split        in two parts: the rounding error is quantized and multiplied as well, so nothing is lost

The product is a private operator of torch, used in this file only. If it is missing (another processor or
another version of torch), weights are converted to floats for each product, with one warning.
Shape suffixes: B batch, T tokens, I inputs, O outputs.
"""

from __future__ import annotations

import logging
import math
import warnings
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .products import Product

# Without VNNI instructions the processor adds pairs of products in 16 bits; 7-bit inputs cannot overflow it.
STEPS = 127 if torch.cpu._is_vnni_supported() else 63
INT8_LEVELS = 2 * STEPS + 1
LEAST = 1e-30  # smallest divisor: a row of zeros stays zeros
ROWS_CHUNK = 2**20  # weights that are quantized at once
MUCH = 2**17  # numbers: half a megabyte, from which on writing them takes longer than reading them twice
# Numbers that are tensors already: torch takes longer to wrap a Python number than to multiply a row by it.
MANY, FINER = torch.tensor(float(STEPS)), torch.tensor(2.0 * STEPS)

InputQuantization = Literal["symmetric", "asymmetric", "split"]


class Int8Weights(NamedTuple):
    """A matrix in 255 steps per row: `codes * scale`."""

    codes_OI: Tensor  # int8, -127 to 127
    scale_O: Tensor  # float32

    def dequantized(self) -> Tensor:
        return self.codes_OI * self.scale_O[:, None]


@torch.no_grad()
def quantize_rows(*weights: Tensor) -> Int8Weights:
    """One matrix, or several one below the other; each number is at most half a step off.

    A few rows at a time: a vocabulary of 150,000 words must not need its size in floats several times.
    """
    height, width = sum(map(len, weights)), weights[0].shape[1]
    codes_OI, scale_O = torch.empty(height, width, dtype=torch.int8), torch.empty(height)
    start = 0
    for part in (rows for weight in weights for rows in torch.split(weight, max(1, ROWS_CHUNK // width))):
        end = start + len(part)
        scale_O[start:end] = part.abs().amax(1).float().clamp(min=LEAST) / 127
        codes_OI[start:end] = (part / scale_O[start:end, None]).round_()
        start = end
    return Int8Weights(codes_OI, scale_O)


class Int8Product(Product):
    """An int8 matrix. `pack` returns the fast variant if this machine supports it."""

    is_quantized = True

    def __init__(self, weights: Int8Weights, bias_O: Tensor | None) -> None:
        self.out_features, self.in_features = weights.codes_OI.shape
        self.bytes = self.out_features * (self.in_features + (4 if bias_O is None else 8))
        self.bias = None if bias_O is None else bias_O.detach().float()

    @staticmethod
    def of(weight_OI: Tensor, bias_O: Tensor | None, inputs: InputQuantization = "symmetric") -> Int8Product:
        return Int8Product.pack(quantize_rows(weight_OI), bias_O, inputs)

    @staticmethod
    def pack(weights: Int8Weights, bias_O: Tensor | None, inputs: InputQuantization) -> Int8Product:
        if not can_pack():
            return DequantizedProduct(weights, bias_O)
        if inputs == "asymmetric":
            return AsymmetricProduct(weights, bias_O)
        return (SplitProduct if inputs == "split" else SymmetricProduct)(weights, bias_O)


class SymmetricProduct(Int8Product):
    """Int8 times int8. The matrix is stored once, in the layout of the operator."""

    name = "int8"
    unit: ClassVar[float] = 1.0  # what the operator gets for the largest input of a row

    def __init__(self, weights: Int8Weights, bias_O: Tensor | None) -> None:
        super().__init__(weights, bias_O)
        self._matrix = _pack(weights.codes_OI, weights.scale_O / self.unit)

    def dequantized(self) -> Tensor:
        return _unpack(self._matrix).dequantized() * self.unit

    def multiply(self, x: Tensor) -> Tensor:
        # For a single row each line of Python costs as much as a tenth of the product: use as few as
        # possible. A row of zeros becomes 0/0, which is rounded to some integer, and that times zero is zero.
        top = _top(x)
        y = self._multiply_parts(x / top)
        return y.mul_(top) if self.bias is None else torch.addcmul(self.bias, y, top, out=y)

    def _multiply_parts(self, parts: Tensor) -> Tensor:
        return _multiply(parts, self._matrix)


class SplitProduct(SymmetricProduct):
    """Int8 with inputs in two parts: the rounding errors of the first are the second."""

    name = "int8-fine"
    unit = float(STEPS)

    def _multiply_parts(self, parts: Tensor) -> Tensor:
        return _multiply_split(parts, self._matrix)


class AsymmetricProduct(Int8Product):
    """Int8 times int8, with the steps of each row fitted to its range."""

    name = "int8, rows by their range"

    def __init__(self, weights: Int8Weights, bias_O: Tensor | None) -> None:
        super().__init__(weights, bias_O)
        self.matrix = _pack(weights.codes_OI, weights.scale_O, self.bias)
        self.sum_O = -_row_sums(weights.codes_OI) * weights.scale_O  # per step of a row's zero point
        self.bytes += 4 * self.out_features

    def dequantized(self) -> Tensor:
        return _unpack(self.matrix).dequantized()

    def multiply(self, x: Tensor) -> Tensor:
        if x.numel() > x.shape[-1]:
            return _asymmetric_rows(x, self.matrix, self.bias, self.sum_O)
        low, high = x.aminmax()
        return self.multiply_row(x, low.item(), high.item())

    def multiply_row(self, x: Tensor, low: float, high: float) -> Tensor:
        """The product of a single row, whose least and greatest number are known."""
        least, most = min(low, 0.0), max(high, 0.0)
        step = max((most - least) / INT8_LEVELS, LEAST)
        if math.isnan(step):  # the input has a NaN; so will the output
            return _asymmetric_rows(x, self.matrix, self.bias, self.sum_O)
        return _call(x, step, round(-least / step), self.matrix)


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


class DequantizedProduct(Int8Product):
    """Int8 weights, converted to floats for every product: saves memory on any machine, but no time."""

    name = "int8, multiplied as floats"

    def __init__(self, weights: Int8Weights, bias_O: Tensor | None) -> None:
        super().__init__(weights, bias_O)
        self._weights = weights

    def dequantized(self) -> Tensor:
        return self._weights.dequantized()

    def multiply(self, x: Tensor) -> Tensor:
        y = F.linear(x, self._weights.codes_OI.float()) * self._weights.scale_O
        return y if self.bias is None else y + self.bias


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
    logging.getLogger("clearhead.engine").warning(
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


def _row_sums(codes_OI: Tensor) -> Tensor:
    """As floats: whole numbers, of which none is rounded. A few rows at a time, because they are copied."""
    sums_O = torch.empty(len(codes_OI))
    rows = max(1, ROWS_CHUNK // codes_OI.shape[1])
    for start in range(0, len(codes_OI), rows):
        sums_O[start : start + rows] = codes_OI[start : start + rows].float().sum(1)
    return sums_O


def _unpack(matrix: Any) -> Int8Weights:
    packed = torch.ops.quantized.linear_unpack(matrix)[0]
    return Int8Weights(packed.int_repr(), packed.q_per_channel_scales().float())


def _multiply(parts_BTI: Tensor, matrix: Any, step: float = 1 / STEPS) -> Tensor:
    """The product of inputs from -1 to 1, which the operator rounds to whole steps."""
    return _call(parts_BTI, step, STEPS + 1, matrix)


def _call(x_BTI: Tensor, step: float, zero: int, matrix: Any) -> Tensor:
    """The operator: inputs rounded to multiples of `step`, with this zero point, times the matrix."""
    answer: Tensor = int8_operator()(x_BTI, step, zero, matrix)
    return answer


def int8_operator() -> Any:
    # Without `_op`, parsing the arguments takes ten microseconds, a third of a product of one row.
    return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default._op


def _multiply_split(parts_BTI: Tensor, matrix: Any) -> Tensor:
    """Twice as many bits: the whole steps and, as further rows of the same product, the rounding errors.

    The result is in steps, not in parts; the scales of this matrix account for that.
    """
    steps = parts_BTI.mul_(MANY)
    whole = steps.round()
    left = steps.sub_(whole).mul_(FINER)
    coarse, fine = _multiply(torch.cat((whole, left)), matrix, step=1.0).chunk(2)
    return torch.add(coarse, fine, alpha=0.5 / STEPS)
