"""The fused operators of `fused`, compiled by numba at first use and kept on disk.

The first argument is the address of an int64 array of sizes, strides and addresses that stay the same from
step to step; its layout is the tuple of names that stands above each operator. Strides count numbers, not
bytes. `bf16` flags say which operands are bfloat16.

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


def compiled(*signatures: str) -> Any:
    return njit(
        list(signatures) or None,
        fastmath=FAST,
        boundscheck=False,
        nogil=True,
        error_model="numpy",
        cache=True,
    )


@intrinsic
def _pointer(context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@intrinsic
def _float_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _bits_of_float(context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), generate


@compiled()
def _floats(address, count):  # type: ignore[no-untyped-def]
    return carray(_pointer(address), (count,), np.float32)


@compiled()
def _halves(address, count):  # type: ignore[no-untyped-def]
    return carray(_pointer(address), (count,), np.uint16)


@compiled()
def _integers(address, count):  # type: ignore[no-untyped-def]
    return carray(_pointer(address), (count,), np.int64)


@compiled()
def _widen(half):  # type: ignore[no-untyped-def]
    return _float_of_bits(np.int32(half) << np.int32(16))


@compiled()
def _narrow(number):  # type: ignore[no-untyped-def]
    """To bfloat16, to the nearest and halves to even, as torch does."""
    bits = _bits_of_float(f32(number))
    return np.uint16((bits + np.int32(0x7FFF) + ((bits >> np.int32(16)) & np.int32(1))) >> np.int32(16))


@compiled()
def _exp(x):  # type: ignore[no-untyped-def]
    """e to the x to within 2e-7, in arithmetic that LLVM vectorises (the polynomial of Cephes)."""
    x = min(max(x, f32(-87.0)), f32(88.0))
    n = np.floor(x * f32(1.4426950408889634) + f32(0.5))
    r = x - n * f32(0.693359375) + n * f32(2.12194440e-4)
    p = f32(1.9875691500e-4)
    p = p * r + f32(1.3981999507e-3)
    p = p * r + f32(8.3334519073e-3)
    p = p * r + f32(4.1665795894e-2)
    p = p * r + f32(1.6666665459e-1)
    p = p * r + f32(5.0000001201e-1)
    return (p * r * r + r + f32(1.0)) * _float_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))


@compiled()
def _erf(x):  # type: ignore[no-untyped-def]
    """The error function to within 5e-7 (Abramowitz and Stegun 7.1.26)."""
    a = abs(x)
    t = f32(1) / (f32(1) + f32(0.3275911) * a)
    p = f32(1.061405429)
    p = p * t + f32(-1.453152027)
    p = p * t + f32(1.421413741)
    p = p * t + f32(-0.284496736)
    p = p * t + f32(0.254829592)
    y = f32(1) - p * t * _exp(-a * a)
    return y if x >= f32(0) else -y


@compiled()
def _range(least, most, levels):  # type: ignore[no-untyped-def]
    """The step and the zero point that fit the numbers from least to most into this number of levels."""
    least, most = min(np.float64(least), 0.0), max(np.float64(most), 0.0)
    step = (most - least) / levels
    if not step >= 1e-30:  # a row of zeros; NaN stays NaN
        step = step if math.isnan(step) else 1e-30
    zero = np.int64(0) if math.isnan(step) else np.int64(np.rint(-least / step))
    return step, zero


ADD_NORM = ("rows", "width", "sum", "out", "weight", "bias", "centre", "levels", "added_bf16", "out_bf16")


@compiled("Tuple((float64, int64))(int64, int64, int64, float64)")
def add_norm(params, x_at, added_at, eps):  # type: ignore[no-untyped-def]
    """x + added into `sum` (added 0: x alone), its norm into `out`; step and zero point of a single row."""
    p = _integers(params, 10)
    rows, width = p[0], p[1]
    weight, centre = _floats(p[4], width), p[6] != 0
    step, zero = 0.0, np.int64(0)
    for row in range(rows):
        x = _floats(x_at + 4 * row * width, width)
        total = _floats(p[2] + 4 * row * width, width)
        s, squares = f32(0), f32(0)
        if added_at == 0:
            for i in range(width):
                total[i] = x[i]
                s += x[i]
        elif p[8]:
            added16 = _halves(added_at + 2 * row * width, width)
            for i in range(width):
                v = x[i] + _widen(added16[i])
                total[i] = v
                s += v
        else:
            added = _floats(added_at + 4 * row * width, width)
            for i in range(width):
                v = x[i] + added[i]
                total[i] = v
                s += v
        mean = s / f32(width) if centre else f32(0)
        for i in range(width):
            d = total[i] - mean
            squares += d * d
        inverse = f32(1) / np.sqrt(squares / f32(width) + f32(eps))
        out, out16 = _floats(p[3] + 4 * row * width, width), _halves(p[3] + 2 * row * width, width)
        low, high = f32(0), f32(0)
        if p[9]:
            if p[5] != 0:
                bias = _floats(p[5], width)
                for i in range(width):
                    out16[i] = _narrow((total[i] - mean) * inverse * weight[i] + bias[i])
            else:
                for i in range(width):
                    out16[i] = _narrow((total[i] - mean) * inverse * weight[i])
        else:
            if p[5] != 0:
                bias = _floats(p[5], width)
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
                step, zero = _range(low + bad, high + bad, p[7])
    return step, zero


GATE = ("rows", "width", "x_stride", "out", "act", "gated", "levels", "in_bf16", "out_bf16")
ACTIVATION_CODES = {"silu": 0, "gelu_tanh": 1, "relu": 2, "gelu": 3}


@compiled()
def _activate(act, v):  # type: ignore[no-untyped-def]
    if act == 0:
        return v / (f32(1) + _exp(-v))
    if act == 1:
        inner = f32(1.5957691216057308) * (v + f32(0.044715) * v * v * v)  # 2 sqrt(2 / pi)
        return v / (f32(1) + _exp(-inner))
    if act == 2:
        return max(v, f32(0))
    return f32(0.5) * v * (f32(1) + _erf(v * f32(0.7071067811865476)))


@compiled("Tuple((float64, int64))(int64, int64, int64)")
def gate(params, gate_at, up_at):  # type: ignore[no-untyped-def]
    """act(gate) * up into `out`, or act(gate) alone."""
    p = _integers(params, 9)
    rows, width, stride, act, gated = p[0], p[1], p[2], p[4], p[5] != 0
    size = 2 if p[7] else 4
    step, zero = 0.0, np.int64(0)
    for row in range(rows):
        at = size * row * stride
        out, out16 = _floats(p[3] + 4 * row * width, width), _halves(p[3] + 2 * row * width, width)
        g, u = _floats(gate_at + at, width), _floats(up_at + at, width)
        g16, u16 = _halves(gate_at + at, width), _halves(up_at + at, width)
        # One loop for each kind of input and output, so that each is vectorised.
        if p[7] and p[8]:
            for i in range(width):
                v = _activate(act, _widen(g16[i]))
                out16[i] = _narrow(v * _widen(u16[i]) if gated else v)
        elif p[7]:
            for i in range(width):
                v = _activate(act, _widen(g16[i]))
                out[i] = v * _widen(u16[i]) if gated else v
        elif p[8]:
            for i in range(width):
                v = _activate(act, g[i])
                out16[i] = _narrow(v * u[i] if gated else v)
        else:
            for i in range(width):
                v = _activate(act, g[i])
                out[i] = v * u[i] if gated else v
        if p[6] != 0 and not p[8]:
            low, high, bad = f32(0), f32(0), f32(0)
            for i in range(width):
                low, high = min(low, out[i]), max(high, out[i])
                bad += out[i] * f32(0)
            step, zero = _range(low + bad, high + bad, p[6])
    return step, zero


ATTEND = (
    "batch", "heads", "kv_heads", "queries", "head_dim",
    "q_batch", "q_head", "q_query",  # strides of q
    "k_batch", "k_head", "v_batch", "v_head",  # of the new keys and values
    "keys", "keys_batch", "keys_head", "keys_token",  # the cache: address and strides
    "values", "values_batch", "values_head", "values_token",
    "out", "out_batch", "out_head", "out_query",
    "append", "rotated", "neighbours", "angle_batch",
    "length", "grows", "window",
    "mask_kind", "mask_batch", "mask_head", "mask_query",
    "scores", "levels", "in_bf16", "out_bf16",
    "mask_batch_grows", "mask_head_grows", "mask_query_grows",
)  # fmt: skip


@compiled()
def _rotate(x, cos, sin, rotated, neighbours):  # type: ignore[no-untyped-def]
    half = rotated // 2
    if neighbours:
        for i in range(half):
            a, b = x[2 * i], x[2 * i + 1]
            x[2 * i] = a * cos[2 * i] - b * sin[2 * i]
            x[2 * i + 1] = b * cos[2 * i + 1] + a * sin[2 * i + 1]
    else:
        for i in range(half):
            a, b = x[i], x[half + i]
            x[i] = a * cos[i] - b * sin[i]
            x[half + i] = b * cos[half + i] + a * sin[half + i]


@compiled()
def _copy_in(target, at, bf16):  # type: ignore[no-untyped-def]
    count = target.size
    if bf16:
        source16 = _halves(at, count)
        for i in range(count):
            target[i] = _widen(source16[i])
    else:
        source = _floats(at, count)
        for i in range(count):
            target[i] = source[i]


@compiled()
def _score(q, keys_at, stride, first, length, scores):  # type: ignore[no-untyped-def]
    """q times every key: four keys at a time, so that their sums do not wait for one another."""
    width = q.size
    blocks = first + (length - first) // 4 * 4
    for t in range(first, blocks, 4):
        k0 = _floats(keys_at + 4 * t * stride, width)
        k1 = _floats(keys_at + 4 * (t + 1) * stride, width)
        k2 = _floats(keys_at + 4 * (t + 2) * stride, width)
        k3 = _floats(keys_at + 4 * (t + 3) * stride, width)
        s0, s1, s2, s3 = f32(0), f32(0), f32(0), f32(0)
        for i in range(width):
            s0 += q[i] * k0[i]
            s1 += q[i] * k1[i]
            s2 += q[i] * k2[i]
            s3 += q[i] * k3[i]
        scores[t], scores[t + 1], scores[t + 2], scores[t + 3] = s0, s1, s2, s3
    for t in range(blocks, length):
        k0 = _floats(keys_at + 4 * t * stride, width)
        s0 = f32(0)
        for i in range(width):
            s0 += q[i] * k0[i]
        scores[t] = s0


@compiled()
def _mask(scores, mask_at, at, kind, first, length):  # type: ignore[no-untyped-def]
    """Kind 1: a boolean mask, True may attend; kind 2: numbers to add. It begins with the first key used."""
    if kind == 1:
        allowed = carray(_pointer(mask_at + at), (length - first,), np.uint8)
        for t in range(first, length):
            if allowed[t - first] == 0:
                scores[t] = LOWEST
    else:
        added = _floats(mask_at + 4 * at, length - first)
        for t in range(first, length):
            scores[t] = max(scores[t] + added[t - first], LOWEST)


@compiled()
def _weigh(scores, values_at, stride, first, length, out):  # type: ignore[no-untyped-def]
    """Softmax of the scores, times the values; a query that may attend to nothing gives zeros."""
    width = out.size
    top = LOWEST
    for t in range(first, length):
        top = max(top, scores[t])
    total = f32(0)
    if top > LOWEST or math.isnan(top):
        for t in range(first, length):
            e = _exp(scores[t] - top) if scores[t] > LOWEST else f32(0)
            scores[t] = e
            total += e
    for i in range(width):
        out[i] = f32(0)
    if total == f32(0):
        return
    blocks = first + (length - first) // 4 * 4
    for t in range(first, blocks, 4):
        v0 = _floats(values_at + 4 * t * stride, width)
        v1 = _floats(values_at + 4 * (t + 1) * stride, width)
        v2 = _floats(values_at + 4 * (t + 2) * stride, width)
        v3 = _floats(values_at + 4 * (t + 3) * stride, width)
        w0, w1, w2, w3 = scores[t], scores[t + 1], scores[t + 2], scores[t + 3]
        for i in range(width):
            out[i] += w0 * v0[i] + w1 * v1[i] + w2 * v2[i] + w3 * v3[i]
    for t in range(blocks, length):
        v0 = _floats(values_at + 4 * t * stride, width)
        w0 = scores[t]
        for i in range(width):
            out[i] += w0 * v0[i]
    for i in range(width):
        out[i] /= total


@compiled("Tuple((float64, int64))(int64, int64, int64, int64, int64, int64, int64, int64, float64)")
def attend(params, q_at, k_at, v_at, cos_at, sin_at, mask_at, n, scale):  # type: ignore[no-untyped-def]
    """Rotate, append the new key and value of each row, and attend with every query of a row.

    `n` counts the steps since the step was captured: `length` grows by it, and so does the place to append.
    """
    p = _integers(params, 42)
    batch, heads, kv_heads, queries, width = p[0], p[1], p[2], p[3], p[4]
    length = p[28] + n * p[29]
    first = max(length - p[30], 0) if p[30] else 0
    size = 2 if p[37] else 4
    per, rotated = heads // kv_heads, p[25]
    low, high, bad = f32(0), f32(0), f32(0)
    for b in range(batch):
        cos = _floats(cos_at + 4 * b * p[27], rotated)
        sin = _floats(sin_at + 4 * b * p[27], rotated)
        if p[24]:
            for g in range(kv_heads):
                new = length - 1
                k = _floats(p[12] + 4 * (b * p[13] + g * p[14] + new * p[15]), width)
                v = _floats(p[16] + 4 * (b * p[17] + g * p[18] + new * p[19]), width)
                _copy_in(k, k_at + size * (b * p[8] + g * p[9]), p[37])
                _copy_in(v, v_at + size * (b * p[10] + g * p[11]), p[37])
                if rotated:
                    _rotate(k, cos, sin, rotated, p[26])
        scores = _floats(p[35], length)
        q = _floats(p[35] + 4 * length, width)
        out = _floats(p[35] + 4 * (length + width), width)
        for h in range(heads):
            keys_at = p[12] + 4 * (b * p[13] + (h // per) * p[14])
            values_at = p[16] + 4 * (b * p[17] + (h // per) * p[18])
            for query in range(queries):
                _copy_in(q, q_at + size * (b * p[5] + h * p[6] + query * p[7]), p[37])
                if rotated:
                    _rotate(q, cos, sin, rotated, p[26])
                for i in range(width):
                    q[i] *= f32(scale)
                _score(q, keys_at, p[15], first, length, scores)
                if p[31]:
                    at = b * (p[32] + n * p[39]) + h * (p[33] + n * p[40]) + query * (p[34] + n * p[41])
                    _mask(scores, mask_at, at, p[31], first, length)
                _weigh(scores, values_at, p[19], first, length, out)
                target = p[21] * b + p[22] * h + p[23] * query
                if p[38]:
                    to16 = _halves(p[20] + 2 * target, width)
                    for i in range(width):
                        to16[i] = _narrow(out[i])
                else:
                    to = _floats(p[20] + 4 * target, width)
                    for i in range(width):
                        to[i] = out[i]
                        low, high = min(low, out[i]), max(high, out[i])
                        bad += out[i] * f32(0)
    if p[36] != 0:
        return _range(low + bad, high + bad, p[36])
    return 0.0, np.int64(0)
