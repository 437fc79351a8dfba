"""Int4 weights: a float matrix in; codes from 0 to 15 out, and a product that reads five bits per weight.

Each row is cut into groups of 32 inputs, and each group has a scale and a zero point in bfloat16:

    weight = (code - 8) * scale + zero

`quantize_groups` searches scale and zero point of every group for the least error, weighted by how large the
inputs are that the weights are multiplied by (`input_squares` measures that). `Int4Product` multiplies with
them: inputs and results are rounded to bfloat16, sums are float32, and the result for a row does not depend
on the other rows of the batch.

The product is a private operator of torch, used in this file only. If it is missing (another processor or
another version of torch), weights are converted to floats for each product, with one warning.
Shape suffixes: O outputs, I inputs, G groups per row, R rows; in the search K weights of a group, N groups,
S starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..nn import TokenLogits
from .products import Product

GROUP_SIZE = 32
MAX_CODE, ZERO_CODE = 15, 8  # the zero point is the weight of code 8
OUTPUT_BLOCK = 16  # the operator takes a multiple of this number of outputs
LARGEST_WEIGHT = 1e38  # larger ones could become infinite in bfloat16
SMALLEST_RANGE = 1e-30  # of the weights of a group, so that dividing by it is safe
LEAST_IMPORTANCE = 1e-3  # of the mean: inputs that were always zero may be larger in another text
SEARCH_CHUNK = 2**18  # weights that are searched at once: what the search needs stays in the cache
DEQUANTIZED_CHUNK = 2**20  # weights that are converted to floats at once, without torch's operator
IDENTITY_ROWS = 256
PACKED_ROWS = 1024  # a multiple of the rows of a block, at most 64
REFITS = 3


def _starts() -> list[tuple[float, float]]:
    """Where the search starts: codes are `round(t * levels + offset)` for a weight t of its group's range.

    With more than 15 levels the outermost weights are clipped: at the upper end, at the lower end, or both.
    With 8 to 14 levels the highest codes are not used; these find the steps of weights that have been
    quantized before and do not use all codes.
    """
    clipped = [14.0, 14.5, *(15.5 + 0.5 * i for i in range(8))]
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    fewer = [(float(levels), 0.0) for levels in range(8, 14)]
    return [(15.0, 0.0), *fewer, *((levels, (15 - levels) * share) for levels in clipped for share in shares)]


STARTS = _starts()


@dataclass(frozen=True)
class Int4Weights:
    """A matrix in groups of 32 inputs; the last group of a row may be shorter."""

    codes_OI: Tensor  # uint8, 0 to 15
    scale_OG: Tensor  # bfloat16
    zero_OG: Tensor  # bfloat16


@torch.no_grad()
def quantize_groups(weight_OI: Tensor, importance_I: Tensor | None = None) -> Int4Weights:
    """The codes, scales and zero points with the least sum of `importance * error ** 2` that was found.

    It is never larger than with scales from the least to the greatest weight of each group. Weights that are
    on a grid of 16 values per group already keep it. An importance below a thousandth of the mean counts as
    a thousandth.
    """
    _check_weight(weight_OI)
    outputs, inputs = weight_OI.shape
    importance_KG = _grouped_importance(importance_I, inputs, weight_OI.device)
    rows = max(1, SEARCH_CHUNK // inputs)
    parts = [_quantize_rows(weight_OI[i : i + rows], importance_KG) for i in range(0, outputs, rows)]
    codes, scale, zero = (torch.cat(part) for part in zip(*parts, strict=True))
    return Int4Weights(codes, scale, zero)


def dequantize(weights: Int4Weights) -> Tensor:
    """The float32 matrix that the product multiplies by."""
    outputs, inputs = weights.codes_OI.shape
    codes_OGK = F.pad(weights.codes_OI, (0, -inputs % GROUP_SIZE)).view(outputs, -1, GROUP_SIZE)
    scale_OG1, zero_OG1 = (steps.float()[..., None] for steps in (weights.scale_OG, weights.zero_OG))
    weight_OGK = codes_OGK.float().sub_(ZERO_CODE).mul_(scale_OG1).add_(zero_OG1)
    return weight_OGK.view(outputs, -1)[:, :inputs]


class Int4Product(Product):
    """An int4 matrix. Its operator has no bias, so one is added in float32."""

    is_quantized = True

    name = "int4"
    takes = torch.bfloat16

    def __init__(self, weights: Int4Weights, bias_O: Tensor | None = None) -> None:
        self.outputs, self.inputs = weights.codes_OI.shape
        self.out_features = self.outputs
        self.gives = torch.bfloat16 if bias_O is None else torch.float32
        self._bias_O = None if bias_O is None else bias_O.detach().float()
        self._missing_inputs = -self.inputs % GROUP_SIZE  # zeros that fill the last group
        padding = (0, self._missing_inputs, 0, -self.outputs % OUTPUT_BLOCK)
        codes_OI = F.pad(weights.codes_OI, padding)
        steps_OG2 = torch.stack((weights.scale_OG, weights.zero_OG), dim=-1)
        self._steps_GO2 = F.pad(steps_OG2, (0, 0, 0, 0, 0, padding[3])).transpose(0, 1).contiguous()
        self._multiply: Callable[[Tensor, Tensor, int, Tensor], Tensor]
        if codes_OI.device.type == "cpu" and is_available():
            self._matrix, self._multiply = _pack(codes_OI), _operator()
        else:
            self._matrix = codes_OI[:, ::2] | codes_OI[:, 1::2] << 4
            self._multiply = _dequantized_product

        bias = 0 if self._bias_O is None else self._bias_O.nbytes
        self.bytes = self._matrix.nbytes + self._steps_GO2.nbytes + bias

    def multiply(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.inputs:
            raise InputError(f"the input is {x.shape[-1]} wide; this int4 matrix takes {self.inputs}")
        x_RI = x.reshape(-1, self.inputs).contiguous()
        if self._missing_inputs:
            x_RI = F.pad(x_RI, (0, self._missing_inputs))
        y_RO = self._multiply(x_RI, self._matrix, GROUP_SIZE, self._steps_GO2)
        if y_RO.shape[1] != self.outputs:
            y_RO = y_RO[:, : self.outputs].contiguous()
        if self._bias_O is not None:
            y_RO = y_RO + self._bias_O
        return y_RO.view(*x.shape[:-1], self.outputs)

    def dequantized(self) -> Tensor:
        scale_OG, zero_OG = self._steps_GO2[:, : self.outputs].transpose(0, 1).unbind(-1)
        return dequantize(Int4Weights(self._codes()[: self.outputs, : self.inputs], scale_OG, zero_OG))

    def _codes(self) -> Tensor:
        """The codes in the order of rows and columns, with those that fill the last group and block."""
        shape = self._steps_GO2.shape[1], self.inputs + self._missing_inputs
        if self._multiply is _dequantized_product:
            return torch.stack((self._matrix & MAX_CODE, self._matrix >> 4), dim=-1).flatten(1)
        block = packed_block()
        return self._measured_codes() if block is None else _unpack(self._matrix, *shape, block)

    def _measured_codes(self) -> Tensor:
        """For an order of codes that is not known: a row of zeros and a one gives a column of the matrix,
        rounded to bfloat16, which is enough to tell which code each weight has."""
        inputs = self.inputs + self._missing_inputs
        rows = torch.split(torch.eye(inputs, dtype=torch.bfloat16), IDENTITY_ROWS)
        columns = [self._multiply(part, self._matrix, GROUP_SIZE, self._steps_GO2) for part in rows]
        rounded_OI = torch.cat(columns).T.float()
        scale_OI, zero_OI = (
            steps.float().repeat_interleave(GROUP_SIZE, 1)
            for steps in self._steps_GO2.transpose(0, 1).unbind(-1)
        )
        steps_OI = (rounded_OI - zero_OI) / torch.where(scale_OI == 0, 1.0, scale_OI)
        return steps_OI.round_().add_(ZERO_CODE).clamp_(0, MAX_CODE).to(torch.uint8)


@cache
def packed_block() -> int | None:
    """The number of rows whose codes the operator stores together; None if it stores them in another way.

    Found by packing random codes: the order of codes differs between processors.
    """
    codes_OI = torch.randint(0, 16, (208, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    packed = _pack(codes_OI)
    return next((n for n in (64, 32, 16) if torch.equal(_unpack(packed, 208, 64, n), codes_OI)), None)


def _unpack(packed: Tensor, outputs: int, inputs: int, block: int) -> Tensor:
    """The codes of a packed matrix: blocks of rows, in these columns, in those two codes to a byte."""
    flat, done, parts = packed.flatten(), 0, list[Tensor]()
    for rows in (outputs - outputs % block, outputs % block):
        if not rows:
            continue
        each = min(rows, block)
        halves = flat[done : done + rows * inputs // 2].view(-1, inputs, each // 2)
        codes = torch.stack((halves & MAX_CODE, halves >> 4), dim=-1).flatten(2)[..., _row_order(each)]
        parts.append(codes.transpose(1, 2).reshape(rows, inputs))
        done += rows * inputs // 2
    return torch.cat(parts) if len(parts) > 1 else parts[0]


@cache
def _row_order(rows: int) -> Tensor:
    """Where the code of each row of a block is: twice its byte, and one more in the upper half of a byte."""
    places = []
    for row in range(rows):
        codes_OI = torch.zeros(rows, GROUP_SIZE, dtype=torch.uint8)
        codes_OI[row, 0] = MAX_CODE
        packed = _pack(codes_OI).flatten()
        at = int(packed.argmax())
        places.append(min(2 * at + int(packed[at] > MAX_CODE), rows - 1))
    return torch.tensor(places)


@cache
def is_available() -> bool:
    """Whether torch has the int4 product on this machine, and it gives the expected result."""
    generator = torch.Generator().manual_seed(0)
    weights = quantize_groups(torch.randn(80, 64, generator=generator))
    x_RI = torch.randn(5, 64, generator=generator).bfloat16()
    expected = x_RI.float() @ dequantize(weights).T
    try:
        steps_GO2 = torch.stack((weights.scale_OG.T, weights.zero_OG.T), dim=-1)
        answer = _operator()(x_RI, _pack(weights.codes_OI), GROUP_SIZE, steps_GO2)
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = str(error).strip().split("\n")[0][:100]
    else:
        if torch.allclose(answer.float(), expected, rtol=0.016, atol=0.016):
            return True
        reason = "its result is wrong"
    logging.getLogger("clearhead.engine").warning(
        "no fast int4 product on this machine (%s): weights are stored in int4 and multiplied as floats",
        reason,
    )
    return False


def input_squares(model: nn.Module, run: Callable[[], object]) -> dict[nn.Module, Tensor]:
    """The mean square of each input of every linear layer and language-model head while `run()` runs.

    `run` calls the model, without padding; random ids do as well as text (docs/log.md, "Int4"). Generating
    is no substitute: a replayed step calls no layers. Layers that were not called are left out.
    """
    sums: dict[nn.Module, Tensor] = {}
    counts: dict[nn.Module, int] = {}

    def add(layer: nn.Module, args: tuple[Any, ...]) -> None:
        x: Tensor = args[0]
        if isinstance(layer, TokenLogits):  # its matrix is multiplied by what the transform returns
            x = (x if layer.transform is None else layer.transform(x)) * layer.scale
        squares_I = x.detach().flatten(0, -2).double().square().sum(0)
        sums[layer] = sums[layer] + squares_I if layer in sums else squares_I
        counts[layer] = counts.get(layer, 0) + x[..., 0].numel()

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | TokenLogits)]
    hooks = [layer.register_forward_pre_hook(add) for layer in layers]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return {layer: (total / counts[layer]).float() for layer, total in sums.items()}


def _check_weight(weight_OI: Tensor) -> None:
    shape = tuple(weight_OI.shape)
    if weight_OI.ndim != 2 or not weight_OI.is_floating_point() or not weight_OI.numel():
        kind = str(weight_OI.dtype).removeprefix("torch.")
        raise InputError(f"int4 quantizes a matrix of floats (outputs, inputs); given {kind} {shape}")
    least, most = weight_OI.aminmax()
    if not (least > -LARGEST_WEIGHT and most < LARGEST_WEIGHT):  # true for NaN as well
        nan, infinite = int(weight_OI.isnan().sum()), int(weight_OI.isinf().sum())
        given = f"{nan} NaN and {infinite} infinite values" if nan or infinite else "values beyond 1e38"
        raise InputError(
            f"a weight of shape {shape} has {given} and cannot be quantized to int4: check the checkpoint"
        )


def _grouped_importance(importance_I: Tensor | None, inputs: int, device: torch.device) -> Tensor:
    """By place in the group and group: mean 1, at least a thousandth, and 0 where a row has ended."""
    if importance_I is None:
        importance_I = torch.ones(inputs, device=device)
    if importance_I.shape != (inputs,):
        shape = tuple(importance_I.shape)
        raise InputError(f"importance is one number per input of the matrix, ({inputs},); given {shape}")
    if not bool(((importance_I >= 0) & importance_I.isfinite()).all()):
        raise InputError(
            "importance has a negative, NaN or infinite value; it is a mean square: measure it on other text"
        )
    importance = importance_I.to(device, torch.float64)
    mean = importance.mean()
    importance = importance / mean if mean > 0 else torch.ones_like(importance)
    filled = F.pad(importance.clamp(min=LEAST_IMPORTANCE), (0, -inputs % GROUP_SIZE))
    return filled.float().view(-1, GROUP_SIZE).T


def _quantize_rows(weight_RI: Tensor, importance_KG: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The codes, scales and zero points of some rows."""
    rows, inputs = weight_RI.shape
    groups = importance_KG.shape[1]
    # A short group repeats its last weight, which changes neither its range nor (at importance 0) its error.
    missing = weight_RI[:, -1:].expand(rows, groups * GROUP_SIZE - inputs)
    padded = torch.cat((weight_RI, missing), dim=1).float()
    # Groups side by side, the weights of a group below each other: sums over a group add long vectors.
    w_KN = padded.view(rows * groups, GROUP_SIZE).T.contiguous()
    p_KN = importance_KG[:, None].expand(-1, rows, -1).reshape(GROUP_SIZE, -1)
    scale_N, zero_N, codes_KN = _search(w_KN, p_KN)
    codes_RI = codes_KN.to(torch.uint8).T.reshape(rows, -1)[:, :inputs].contiguous()
    by_row = (rows, groups)
    return codes_RI, scale_N.view(by_row).to(torch.bfloat16), zero_N.view(by_row).to(torch.bfloat16)


def _search(w_KN: Tensor, p_KN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scale, zero point and codes of each group: the best start, refitted, or plain rounding if better."""
    low_N = w_KN.amin(0)
    range_N = w_KN.amax(0) - low_N
    fits = _LineFits((w_KN - low_N) / range_N.clamp(min=SMALLEST_RANGE), p_KN)
    errors_SN = torch.stack([fits.line(fits.start(*start)).error_N for start in STARTS])
    levels_N, offset_N = w_KN.new_tensor(STARTS)[errors_SN.argmin(0)].unbind(-1)
    line = fits.line(fits.start(levels_N, offset_N))
    for _ in range(REFITS):  # a fitted line has better codes, and these have a better line
        line = fits.line(fits.codes(line))
    steps_KN = fits.codes(line) - ZERO_CODE
    scale_N = _bfloat16(line.slope_N * range_N)
    zero_N = _sum((w_KN - steps_KN * scale_N) * p_KN) / _sum(p_KN)
    error_N, zero_N, codes_KN = _rounded(w_KN, p_KN, scale_N, zero_N)

    plain_scale_N = _bfloat16(range_N / MAX_CODE)
    plain_error_N, plain_zero_N, plain_codes_KN = _rounded(
        w_KN, p_KN, plain_scale_N, low_N + ZERO_CODE * plain_scale_N
    )
    better_N = error_N <= plain_error_N
    return (
        torch.where(better_N, scale_N, plain_scale_N),
        torch.where(better_N, zero_N, plain_zero_N),
        torch.where(better_N, codes_KN, plain_codes_KN),
    )


@dataclass(frozen=True)
class _Line:
    """The best line of each group, t = slope * code + start, and its error."""

    slope_N: Tensor
    start_N: Tensor
    error_N: Tensor


class _LineFits:
    """Lines through the weights t (0 to 1) of each group over their codes: least squares, weighted by p."""

    def __init__(self, t_KN: Tensor, p_KN: Tensor) -> None:
        self._t_KN, self._p_KN = t_KN, p_KN
        pt_KN = p_KN * t_KN
        self._p_N, self._pt_N, self._ptt_N = _sum(p_KN), _sum(pt_KN), _sum(pt_KN * t_KN)

    def start(self, levels: float | Tensor, offset: float | Tensor) -> Tensor:
        return (self._t_KN * levels).add_(offset).round_().clamp_(0, MAX_CODE)

    def codes(self, line: _Line) -> Tensor:
        """The codes whose weights are nearest."""
        slope_N = torch.where(line.slope_N == 0, 1.0, line.slope_N)
        return ((self._t_KN - line.start_N) / slope_N).round_().clamp_(0, MAX_CODE)

    def line(self, codes_KN: Tensor) -> _Line:
        pc_KN = self._p_KN * codes_KN
        pc_N, pcc_N, pct_N = _sum(pc_KN), _sum(pc_KN * codes_KN), _sum(pc_KN * self._t_KN)
        spread_N = self._p_N * pcc_N - pc_N * pc_N
        # Without a spread all weights that count have one code, and the line is flat.
        flat_N = spread_N <= 1e-6 * self._p_N * pcc_N
        slope_N = torch.where(flat_N, 0.0, (self._p_N * pct_N - pc_N * self._pt_N) / spread_N)
        start_N = (self._pt_N - slope_N * pc_N) / self._p_N
        return _Line(slope_N, start_N, self._ptt_N - slope_N * pct_N - start_N * self._pt_N)


def _rounded(w_KN: Tensor, p_KN: Tensor, scale_N: Tensor, zero_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weighted error with this scale, the zero point in bfloat16, and the best codes for both."""
    zero_N = _bfloat16(zero_N)
    divisor_N = torch.where(scale_N == 0, 1.0, scale_N)
    steps_KN = ((w_KN - zero_N) / divisor_N).round_().clamp_(-ZERO_CODE, MAX_CODE - ZERO_CODE)
    error_N = _sum((steps_KN * scale_N).add_(zero_N).sub_(w_KN).square_().mul_(p_KN))
    return error_N, zero_N, steps_KN.add_(ZERO_CODE)


def _sum(x_KN: Tensor) -> Tensor:
    """Over each group. torch's own sum adds in another order where there are fewer groups beside it."""
    while len(x_KN) > 1:
        half = len(x_KN) // 2
        x_KN = x_KN[:half] + x_KN[half:]
    return x_KN[0]


def _bfloat16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).float()


def _operator() -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
    # Without `_op`, parsing the arguments takes ten microseconds, as long as a small product of one row.
    multiply: Callable[[Tensor, Tensor, int, Tensor], Tensor]
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu.default._op
    return multiply


def _pack(codes_OI: Tensor) -> Tensor:
    """The codes in the order in which the operator reads them on this machine.

    It packs blocks of rows, one after the other, and wants four bytes per code: so a few blocks at a time.
    """
    convert = torch.ops.aten._convert_weight_to_int4pack_for_cpu
    packed_OH = torch.empty(len(codes_OI), codes_OI.shape[1] // 2, dtype=torch.uint8)
    for start in range(0, len(codes_OI), PACKED_ROWS):
        packed_OH[start : start + PACKED_ROWS] = convert(codes_OI[start : start + PACKED_ROWS].int(), 1)
    return packed_OH


def _dequantized_product(x_RI: Tensor, matrix: Tensor, group_size: int, steps_GO2: Tensor) -> Tensor:
    """What the operator returns, from two codes per byte in order, converted to floats some rows at a time.

    The sums are float64: whatever their order, they are the same once rounded to bfloat16, so a row of inputs
    has the same result in every batch.
    """
    x = x_RI.double()
    rows = max(1, DEQUANTIZED_CHUNK // x.shape[1])
    parts = []
    for i in range(0, len(matrix), rows):
        bytes_OH = matrix[i : i + rows]
        codes_OI = torch.stack((bytes_OH & MAX_CODE, bytes_OH >> 4), dim=-1).flatten(1)
        scale_OG, zero_OG = steps_GO2[:, i : i + rows].unbind(-1)
        parts.append(x @ dequantize(Int4Weights(codes_OI, scale_OG.T, zero_OG.T)).double().T)
    return torch.cat(parts, dim=1).to(torch.bfloat16)
