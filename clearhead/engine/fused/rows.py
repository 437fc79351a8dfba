"""Fused operators over rows: residual and norm; activation and gate.

The first argument is the address of an int64 array of sizes, strides and addresses that stay the same from
step to step; its layout is the tuple of names above the operator. Strides count numbers, not bytes. `bf16`
flags say which operands are bfloat16.
"""

from __future__ import annotations

import numpy as np

from .numbers import (
    as_bfloat16,
    as_float32,
    at_least,
    compiled,
    erf,
    exp,
    f32,
    floats,
    halves,
    int8_range,
    integers,
)

ADD_NORM = ("rows", "width", "sum", "out", "weight", "bias", "centre", "levels", "added_bf16", "out_bf16")


@compiled("Tuple((float64, int64))(int64, int64, int64, float64)")
def add_norm(params, x_at, added_at, eps):  # type: ignore[no-untyped-def]
    """x + added into `sum` (added 0: x alone), its norm into `out`; step and zero point of a single row."""
    p = integers(params, 10)
    rows, width = p[0], p[1]
    weight, centre = floats(p[4], width), p[6] != 0
    step, zero = 0.0, np.int64(0)
    for row in range(rows):
        x = floats(x_at + 4 * row * width, width)
        total = floats(p[2] + 4 * row * width, width)
        s, squares = f32(0), f32(0)
        if added_at == 0:
            for i in range(width):
                total[i] = x[i]
                s += x[i]
        elif p[8]:
            added16 = halves(added_at + 2 * row * width, width)
            for i in range(width):
                v = x[i] + as_float32(added16[i])
                total[i] = v
                s += v
        else:
            added = floats(added_at + 4 * row * width, width)
            for i in range(width):
                v = x[i] + added[i]
                total[i] = v
                s += v
        mean = s / f32(width) if centre else f32(0)
        for i in range(width):
            d = total[i] - mean
            squares += d * d
        inverse = f32(1) / np.sqrt(squares / f32(width) + f32(eps))
        out, out16 = floats(p[3] + 4 * row * width, width), halves(p[3] + 2 * row * width, width)
        if p[9]:
            if p[5] != 0:
                bias = floats(p[5], width)
                for i in range(width):
                    out16[i] = as_bfloat16((total[i] - mean) * inverse * weight[i] + bias[i])
            else:
                for i in range(width):
                    out16[i] = as_bfloat16((total[i] - mean) * inverse * weight[i])
        else:
            if p[5] != 0:
                bias = floats(p[5], width)
                for i in range(width):
                    out[i] = (total[i] - mean) * inverse * weight[i] + bias[i]
            else:
                for i in range(width):
                    out[i] = (total[i] - mean) * inverse * weight[i]
            if p[7] != 0:
                step, zero = int8_range(out, p[7])
    return step, zero


GATE = ("rows", "width", "x_stride", "out", "act", "gated", "levels", "in_bf16", "out_bf16", "scratch")
ACTIVATION_CODES = {"silu": 0, "gelu_tanh": 1, "relu": 2, "gelu": 3}


@compiled()
def _activate(act, x):  # type: ignore[no-untyped-def]
    """In place; one loop for each activation, so that each is vectorised."""
    if act == 0:
        for i in range(x.size):
            x[i] = x[i] / (f32(1) + exp(-x[i]))
    elif act == 1:
        for i in range(x.size):
            v = x[i]
            inner = f32(1.5957691216057308) * (v + f32(0.044715) * v * v * v)  # 2 sqrt(2 / pi)
            x[i] = v / (f32(1) + exp(-inner))
    elif act == 2:
        for i in range(x.size):
            x[i] = at_least(x[i], f32(0))
    else:
        for i in range(x.size):
            x[i] = f32(0.5) * x[i] * (f32(1) + erf(x[i] * f32(0.7071067811865476)))


@compiled()
def copy_in(target, at, bf16):  # type: ignore[no-untyped-def]
    """Numbers at an address, as float32."""
    if bf16:
        source16 = halves(at, target.size)
        for i in range(target.size):
            target[i] = as_float32(source16[i])
    else:
        source = floats(at, target.size)
        for i in range(target.size):
            target[i] = source[i]


@compiled()
def _multiply(x, at, bf16):  # type: ignore[no-untyped-def]
    if bf16:
        other16 = halves(at, x.size)
        for i in range(x.size):
            x[i] *= as_float32(other16[i])
    else:
        other = floats(at, x.size)
        for i in range(x.size):
            x[i] *= other[i]


@compiled("Tuple((float64, int64))(int64, int64, int64)")
def gate(params, gate_at, up_at):  # type: ignore[no-untyped-def]
    """act(gate) * up into `out`, or act(gate) alone."""
    p = integers(params, 10)
    rows, width = p[0], p[1]
    size = 2 if p[7] else 4
    step, zero = 0.0, np.int64(0)
    for row in range(rows):
        at = size * row * p[2]
        x = floats(p[9], width) if p[8] else floats(p[3] + 4 * row * width, width)
        copy_in(x, gate_at + at, p[7])
        _activate(p[4], x)
        if p[5]:
            _multiply(x, up_at + at, p[7])
        if p[8]:
            out16 = halves(p[3] + 2 * row * width, width)
            for i in range(width):
                out16[i] = as_bfloat16(x[i])
        elif p[6] != 0:
            step, zero = int8_range(x, p[6])
    return step, zero
