"""Int8 layers: a float matrix in; a layer out that keeps it in a quarter of the memory and multiplies faster.

A weight is rounded to one of 255 steps of its output channel, an input to one of 255 steps of its own row.
So a row's answer does not depend on its neighbours: alone and in a batch it is rounded alike. Inputs are

    rounded  to steps on both sides of zero alike: the fewest calls where there are many rows
    fitted   to steps between the row's least and greatest number: one call where there is one row
    split    in two: what the rounding left over is multiplied, too, and nothing is lost

The product is a private operator of torch. All that is known of it stands in this file; where it is missing
(another kind of processor, another torch) the weights are multiplied as floats, and that is said once.
Shape suffixes: B batch, T tokens, I inputs, O outputs, V vocabulary, D width.
"""

from __future__ import annotations

import logging
import math
import warnings
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
LEAST = 1e-30  # a row of zeros is divided by this and stays zeros
MUCH = 2**17  # numbers: half a megabyte, from which on writing them takes longer than reading them twice
# Numbers that are tensors already: torch takes longer to wrap a Python number than to multiply a row by it.
MANY, FINER = torch.tensor(float(STEPS)), torch.tensor(2.0 * STEPS)

Inputs = Literal["rounded", "fitted", "split"]


def rounded(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """int8 and a scale per row: their product is the matrix again, to within half a step."""
    top_O = weight_OI.abs().amax(1).float().clamp(min=LEAST)
    scale_O = top_O / 127
    return (weight_OI / scale_O[:, None]).round_().to(torch.int8).contiguous(), scale_O


class Frozen(nn.Module):
    """A layer of rounded weights. It answers; it cannot learn, and says so as soon as somebody tries."""

    rounded_bytes: int = 0  # what its rounded weights, their scales and its bias take in memory

    def train(self, mode: bool = True) -> Frozen:  # noqa: FBT001, FBT002 (torch's own signature)
        if mode:
            raise InputError(
                "an int8 model cannot be trained; load it without quantize, train, then quantize"
            )
        super().train(mode)
        return self


class Int8Linear(Frozen):
    """Stands where a linear layer stood. `of` makes the quick one where this machine can, or the plain."""

    bias: Tensor | None

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight_OI.shape
        self.rounded_bytes = self.out_features * (self.in_features + (4 if bias_O is None else 8))
        self.register_buffer("bias", None if bias_O is None else bias_O.detach().float())

    @staticmethod
    def of(weight_OI: Tensor, bias_O: Tensor | None, inputs: Inputs = "rounded") -> Int8Linear:
        if weight_OI.device.type != "cpu" or not can_pack():
            return _Plain(weight_OI.detach(), bias_O)
        if inputs == "fitted":
            return _Fitted(weight_OI.detach(), bias_O)
        return _Packed(weight_OI.detach(), bias_O, inputs)

    def forward(self, x_BTI: Tensor) -> Tensor:
        x = x_BTI.detach() if x_BTI.requires_grad else x_BTI  # what was rounded has no gradient
        y = self.product(x if x.dtype == torch.float32 else x.float())
        return y if y.dtype == x.dtype else y.type_as(x)

    def product(self, x_BTI: Tensor) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class _Packed(Int8Linear):
    """Int8 times int8. The matrix exists once, in the order the operator wants."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, inputs: Inputs) -> None:
        super().__init__(weight_OI, bias_O)
        weight, scale_O = rounded(weight_OI)
        split = inputs == "split"
        self._matrix = _pack(weight, scale_O / STEPS if split else scale_O)
        self._multiply = _multiply_split if split else _multiply

    def product(self, x_BTI: Tensor) -> Tensor:
        # At one row a step of Python costs as much as a tenth of the product: hence as few as possible. A row
        # of zeros becomes 0/0, which the product rounds to some whole number, and that times zero is zero.
        top_BT1 = _top(x_BTI)
        y = self._multiply(x_BTI / top_BT1, self._matrix)
        return y.mul_(top_BT1) if self.bias is None else torch.addcmul(self.bias, y, top_BT1, out=y)


class _Fitted(Int8Linear):
    """Int8 times int8, with the steps of each row between its least and its greatest number."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__(weight_OI, bias_O)
        weight, scale_O = rounded(weight_OI)
        self._matrix = _pack(weight, scale_O, self.bias)
        self._sum_O = -weight.sum(1) * scale_O  # what one step of a row's zero point takes away
        self.rounded_bytes += 4 * self.out_features

    def product(self, x_BTI: Tensor) -> Tensor:
        return fitted_product(x_BTI, self._matrix, self.bias, self._sum_O)


def fitted_product(x_BTI: Tensor, matrix: Any, bias_O: Tensor | None, sum_O: Tensor) -> Tensor:
    """The product with the steps of each row fitted to its range.

    Its torch calls depend on the numbers in the input, so it must not be recorded call by call. It dispatches
    through torch's `__torch_function__` protocol and thereby is one call for a TorchFunctionMode: that is the
    documented way to be captured as one call of a decode step (`clearhead/generate/replay/capture.py`).
    """
    if has_torch_function_unary(x_BTI):
        dispatched: Tensor = handle_torch_function(fitted_product, (x_BTI,), x_BTI, matrix, bias_O, sum_O)
        return dispatched
    if x_BTI.numel() > x_BTI.shape[-1]:
        return _fit_rows(x_BTI, matrix, bias_O, sum_O)
    low, high = x_BTI.aminmax()
    least, most = min(low.item(), 0.0), max(high.item(), 0.0)
    step = max((most - least) / INT8_LEVELS, LEAST)
    if math.isnan(step):  # there is no step to round to; the answer is no number either
        return _fit_rows(x_BTI, matrix, bias_O, sum_O)
    return _call(x_BTI, step, round(-least / step), matrix)


def _fit_rows(x_BTI: Tensor, matrix: Any, bias_O: Tensor | None, sum_O: Tensor) -> Tensor:
    """As for one row, to the same whole numbers: the operator takes one step for all, so they are made here.

    It multiplies and adds without rounding in between; float64 does the same.
    """
    low, high = x_BTI.amin(-1, keepdim=True).numpy(), x_BTI.amax(-1, keepdim=True).numpy()
    least, most = np.minimum(low, 0.0, dtype=np.float64), np.maximum(high, 0.0, dtype=np.float64)
    exact = np.maximum((most - least) / INT8_LEVELS, LEAST)
    step, zero = exact.astype(np.float32), np.rint(-least / exact)
    inverse = torch.from_numpy((np.float32(1) / step).astype(np.float64))
    whole = torch.addcmul(torch.from_numpy(zero), x_BTI.double(), inverse).float()
    y = _call(whole, 1.0, 0, matrix)
    if bias_O is not None:  # the operator has added it, before the steps are counted
        y = y.sub_(bias_O)
    y = y.addcmul_(torch.from_numpy(zero.astype(np.float32)), sum_O).mul_(torch.from_numpy(step))
    return y if bias_O is None else y.add_(bias_O)


class _Plain(Int8Linear):
    """Int8 weights, made floats again for every product: small everywhere, quick nowhere."""

    weight: Tensor
    scale: Tensor

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__(weight_OI, bias_O)
        weight, scale = rounded(weight_OI)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def product(self, x_BTI: Tensor) -> Tensor:
        y = F.linear(x_BTI, self.weight.float()) * self.scale
        return y if self.bias is None else y + self.bias


class Int8Table(Frozen):
    """Stands where an embedding stood: rows of int8, each with its scale."""

    weight: Tensor
    scale: Tensor

    def __init__(self, weight_VD: Tensor) -> None:
        super().__init__()
        self.num_embeddings = len(weight_VD)
        self.rounded_bytes = weight_VD.numel() + 4 * len(weight_VD)
        weight, scale = rounded(weight_VD.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def forward(self, ids_BT: Tensor) -> Tensor:
        return self.weight[ids_BT] * self.scale[ids_BT][..., None]


@cache
def can_pack() -> bool:
    """Whether torch has the quick product here, and it still means what we think it means."""
    x, weight = torch.tensor([[-3.0, STEPS]]), torch.tensor([[1.0, 0.25], [-1.0, 1.0]])
    try:
        answer = _multiply(x / STEPS, _pack(*rounded(weight))) * STEPS
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = str(error).strip().split("\n")[0][:100]
    else:
        if torch.allclose(answer, x @ weight.T, rtol=0.01):
            return True
        reason = "it gave another product"
    logging.getLogger("clearhead.tune").warning(
        "no quick int8 product on this machine (%s): weights are kept in int8 and multiplied as floats",
        reason,
    )
    return False


def _top(x_BTI: Tensor) -> Tensor:
    """How large the largest number of each row is: in few steps for few rows, without a copy for many."""
    if x_BTI.numel() < MUCH:
        return x_BTI.abs().amax(-1, keepdim=True)
    return torch.maximum(x_BTI.amax(-1, keepdim=True), -x_BTI.amin(-1, keepdim=True))


def _pack(weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None = None) -> Any:
    zeros_O = torch.zeros(len(scale_O), dtype=torch.long)
    with warnings.catch_warnings():
        # torch means to retire these tensors; on that day `can_pack` says no, and its test is red.
        warnings.filterwarnings("ignore", message=".*quantize")
        matrix = torch._make_per_channel_quantized_tensor(weight_OI, scale_O.double(), zeros_O, 0)
    return torch.ops.quantized.linear_prepack(matrix, bias_O)


def _multiply(parts_BTI: Tensor, matrix: Any, step: float = 1 / STEPS) -> Tensor:
    """The product of numbers from -1 to 1, which the operator rounds to whole steps."""
    return _call(parts_BTI, step, STEPS + 1, matrix)


def _call(x_BTI: Tensor, step: float, zero: int, matrix: Any) -> Tensor:
    """The operator: whole steps from `-zero` on, times the matrix."""
    # Without `_op` torch looks through the arguments for ten microseconds, a third of a product of one row.
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default._op
    answer: Tensor = multiply(x_BTI, step, zero, matrix)
    return answer


def _multiply_split(parts_BTI: Tensor, matrix: Any) -> Tensor:
    """Twice as many bits: the whole steps and, as more rows of the same product, what is left of each.

    Counted in steps, not in parts; the scales of this matrix make up for it.
    """
    steps = parts_BTI.mul_(MANY)
    whole = steps.round()
    left = steps.sub_(whole).mul_(FINER)
    coarse, fine = _multiply(torch.cat((whole, left)), matrix, step=1.0).chunk(2)
    return torch.add(coarse, fine, alpha=0.5 / STEPS)
