"""Fused operators over rows: residual and norm; activation and gate.

The first argument is the address of an int64 array of sizes, strides and addresses that stay the same from
step to step; its layout is the tuple of names above the operator. Strides count numbers, not bytes. `bf16`
flags say which operands are bfloat16.
"""

from __future__ import annotations

import numpy as np

from .numbers import as_bfloat16, as_float32, compiled, erf, exp, f32, floats, halves, int8_range, integers

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
        low, high = f32(0), f32(0)
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
                bad = f32(0)
                for i in range(width):
                    low, high = min(low, out[i]), max(high, out[i])
                    bad += out[i] * f32(0)  # NaN if any number is
                step, zero = int8_range(low + bad, high + bad, p[7])
    return step, zero


GATE = ("rows", "width", "x_stride", "out", "act", "gated", "levels", "in_bf16", "out_bf16")
ACTIVATION_CODES = {"silu": 0, "gelu_tanh": 1, "relu": 2, "gelu": 3}


@compiled()
def _activate(act, v):  # type: ignore[no-untyped-def]
    if act == 0:
        return v / (f32(1) + exp(-v))
    if act == 1:
        inner = f32(1.5957691216057308) * (v + f32(0.044715) * v * v * v)  # 2 sqrt(2 / pi)
        return v / (f32(1) + exp(-inner))
    if act == 2:
        return max(v, f32(0))
    return f32(0.5) * v * (f32(1) + erf(v * f32(0.7071067811865476)))


@compiled("Tuple((float64, int64))(int64, int64, int64)")
def gate(params, gate_at, up_at):  # type: ignore[no-untyped-def]
    """act(gate) * up into `out`, or act(gate) alone."""
    p = integers(params, 9)
    rows, width, stride, act, gated = p[0], p[1], p[2], p[4], p[5] != 0
    size = 2 if p[7] else 4
    step, zero = 0.0, np.int64(0)
    for row in range(rows):
        at = size * row * stride
        out, out16 = floats(p[3] + 4 * row * width, width), halves(p[3] + 2 * row * width, width)
        g, u = floats(gate_at + at, width), floats(up_at + at, width)
        g16, u16 = halves(gate_at + at, width), halves(up_at + at, width)
        # One loop for each kind of input and output, so that each is vectorised.
        if p[7] and p[8]:
            for i in range(width):
                v = _activate(act, as_float32(g16[i]))
                out16[i] = as_bfloat16(v * as_float32(u16[i]) if gated else v)
        elif p[7]:
            for i in range(width):
                v = _activate(act, as_float32(g16[i]))
                out[i] = v * as_float32(u16[i]) if gated else v
        elif p[8]:
            for i in range(width):
                v = _activate(act, g[i])
                out16[i] = as_bfloat16(v * u[i] if gated else v)
        else:
            for i in range(width):
                v = _activate(act, g[i])
                out[i] = v * u[i] if gated else v
        if p[6] != 0 and not p[8]:
            low, high, bad = f32(0), f32(0), f32(0)
            for i in range(width):
                low, high = min(low, out[i]), max(high, out[i])
                bad += out[i] * f32(0)
            step, zero = int8_range(low + bad, high + bad, p[6])
    return step, zero
