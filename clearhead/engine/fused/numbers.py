"""What the fused operators are made of: memory at an address as an array, bfloat16, functions of a float32.

fastmath lets LLVM vectorise sums; it must not assume that there are no NaNs, which a damaged model has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

FAST = {"reassoc", "nsz", "contract", "arcp", "afn"}
f32 = np.float32
LOWEST = f32(-3.0e38)


OPTIONS: dict[str, Any] = {
    "fastmath": FAST, "boundscheck": False, "nogil": True, "error_model": "numpy",
}  # fmt: skip


def compiled(*signatures: str) -> Any:
    """Compile at first use, or at once for given signatures; kept on disk, where there is a place for it."""

    def compile_function(function: Any) -> Any:
        try:
            return njit(list(signatures) or None, cache=True, **OPTIONS)(function)
        except RuntimeError:  # neither the package's folder nor the user's cache can be written to
            return njit(list(signatures) or None, **OPTIONS)(function)

    return compile_function


@intrinsic
def pointer(context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@intrinsic
def float_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def bits_of_float(context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), generate


@compiled()
def floats(address, count):  # type: ignore[no-untyped-def]
    return carray(pointer(address), (count,), np.float32)


@compiled()
def halves(address, count):  # type: ignore[no-untyped-def]
    return carray(pointer(address), (count,), np.uint16)


@compiled()
def int8s(address, count):  # type: ignore[no-untyped-def]
    return carray(pointer(address), (count,), np.int8)


@compiled()
def integers(address, count):  # type: ignore[no-untyped-def]
    return carray(pointer(address), (count,), np.int64)


@compiled()
def as_float32(half):  # type: ignore[no-untyped-def]
    return float_of_bits(np.int32(half) << np.int32(16))


@compiled()
def as_bfloat16(number):  # type: ignore[no-untyped-def]
    """To bfloat16, to the nearest and halves to even, as torch does."""
    bits = bits_of_float(f32(number))
    return np.uint16((bits + np.int32(0x7FFF) + ((bits >> np.int32(16)) & np.int32(1))) >> np.int32(16))


@intrinsic
def at_least(context: Any, x: Any, bound: Any) -> Any:
    """The larger of two numbers without a branch, which would not be vectorised; NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, bound = args
        return builder.select(builder.fcmp_ordered("<", x, bound), bound, x)

    return types.float32(types.float32, types.float32), generate


@intrinsic
def at_most(context: Any, x: Any, bound: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, bound = args
        return builder.select(builder.fcmp_ordered(">", x, bound), bound, x)

    return types.float32(types.float32, types.float32), generate


@compiled()
def exp(x):  # type: ignore[no-untyped-def]
    """e to the x to within 2e-7, in arithmetic that LLVM vectorises (the polynomial of Cephes)."""
    x = at_most(at_least(x, f32(-87.0)), f32(88.0))
    power = np.int32(x * f32(1.4426950408889634) + f32(127.5))  # 127 is the exponent of 1.0
    n = f32(power - np.int32(127))
    r = x - n * f32(0.693359375) + n * f32(2.12194440e-4)
    p = f32(1.9875691500e-4)
    p = p * r + f32(1.3981999507e-3)
    p = p * r + f32(8.3334519073e-3)
    p = p * r + f32(4.1665795894e-2)
    p = p * r + f32(1.6666665459e-1)
    p = p * r + f32(5.0000001201e-1)
    return (p * r * r + r + f32(1.0)) * float_of_bits(power << np.int32(23))


@compiled()
def erf(x):  # type: ignore[no-untyped-def]
    """The error function to within 5e-7 (Abramowitz and Stegun 7.1.26)."""
    a = abs(x)
    t = f32(1) / (f32(1) + f32(0.3275911) * a)
    p = f32(1.061405429)
    p = p * t + f32(-1.453152027)
    p = p * t + f32(1.421413741)
    p = p * t + f32(-0.284496736)
    p = p * t + f32(0.254829592)
    y = f32(1) - p * t * exp(-a * a)
    return y if x >= f32(0) else -y


@intrinsic
def _larger(context: Any, a: Any, b: Any) -> Any:
    """The larger of two integers without a branch."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.icmp_signed(">", *args), *args)

    return types.int32(types.int32, types.int32), generate


@compiled()
def int8_range(x, levels):  # type: ignore[no-untyped-def]
    """The step and the zero point that fit zero and all numbers of x into this number of levels.

    The bits of positive numbers are ordered as integers are, with NaN above all; those of negative ones
    are below zero, and positive with the other sign. So both ends are maxima of integers, which LLVM
    vectorises; those of numbers that may be NaN it does not.
    """
    high, low = np.int32(0), np.int32(0)
    for i in range(x.size):
        high, low = _larger(bits_of_float(x[i]), high), _larger(bits_of_float(-x[i]), low)
    least, most = -np.float64(float_of_bits(low)), np.float64(float_of_bits(high))
    step = (most - least) / levels
    if not step >= 1e-30:  # a row of zeros; NaN stays NaN
        step = step if math.isnan(step) else 1e-30
    zero = np.int64(0) if math.isnan(step) else np.int64(np.rint(-least / step))
    return step, zero
