"""The fused operator of attention: rotate, append to the KV cache, attend.

The first argument is the address of an int64 array of sizes, strides and addresses that stay the same from
step to step; its layout is the tuple of names above the operator. Strides count numbers, not bytes. `bf16`
flags say which operands are bfloat16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from .numbers import (
    LOWEST,
    OPTIONS,
    as_bfloat16,
    as_float32,
    at_least,
    compiled,
    exp,
    f32,
    floats,
    halves,
    int8_range,
    int8s,
    integers,
    pointer,
)
from .rows import copy_in

STORED = ("float32", "bfloat16", "int8")
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
    "stored",  # the precision of the cache: an index of STORED
    "step_at",  # in int8: the place of the step of a vector, in bytes
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
def _number(x):  # type: ignore[no-untyped-def]
    return f32(x)


@compiled()
def _one(address):  # type: ignore[no-untyped-def]
    return f32(1)


@compiled()
def _float_at(address):  # type: ignore[no-untyped-def]
    return floats(address, 1)[0]


@compiled()
def _mask(scores, mask_at, at, kind, count):  # type: ignore[no-untyped-def]
    """Kind 1: a boolean mask, True may attend; kind 2: numbers to add. It begins with the first key used."""
    if kind == 1:
        allowed = carray(pointer(mask_at + at), (count,), np.uint8)
        for t in range(count):
            if allowed[t] == 0:
                scores[t] = LOWEST
    else:
        added = floats(mask_at + 4 * at, count)
        for t in range(count):
            scores[t] = max(scores[t] + added[t], LOWEST)


@compiled()
def _softmax(scores, count):  # type: ignore[no-untyped-def]
    """Weights in the place of the scores; zeros for a query that may attend to nothing."""
    top = LOWEST
    for t in range(count):
        top = at_least(scores[t], top)
    if top == LOWEST:
        for t in range(count):
            scores[t] = f32(0)
        return
    total = f32(0)
    for t in range(count):
        e = exp(scores[t] - top)  # of LOWEST: 1e-38, which is nothing beside the 1 of the top
        scores[t] = e
        total += e
    share = f32(1) / total
    for t in range(count):
        scores[t] *= share


def _reader(vector: Any, number: Any, step: Any) -> Any:
    """Scores and weighted values over a cache in one precision.

    `vector` gives an address as an array, `number` one of its numbers as a float32, and `step` what they are
    multiples of, at the address of a vector and `step_at` bytes.
    """

    @njit(inline="always", **OPTIONS)
    def score_all(q, keys_at, stride, step_at, count, scores, width):  # type: ignore[no-untyped-def]
        """Four keys at a time, so that their sums do not wait for one another."""
        blocks = count // 4 * 4
        for t in range(0, blocks, 4):
            k0 = vector(keys_at + t * stride, width)
            k1 = vector(keys_at + (t + 1) * stride, width)
            k2 = vector(keys_at + (t + 2) * stride, width)
            k3 = vector(keys_at + (t + 3) * stride, width)
            s0, s1, s2, s3 = f32(0), f32(0), f32(0), f32(0)
            for i in range(width):
                s0 += q[i] * number(k0[i])
                s1 += q[i] * number(k1[i])
                s2 += q[i] * number(k2[i])
                s3 += q[i] * number(k3[i])
            at = keys_at + t * stride + step_at
            scores[t], scores[t + 1] = s0 * step(at), s1 * step(at + stride)
            scores[t + 2], scores[t + 3] = s2 * step(at + 2 * stride), s3 * step(at + 3 * stride)
        for t in range(blocks, count):
            k0 = vector(keys_at + t * stride, width)
            s0 = f32(0)
            for i in range(width):
                s0 += q[i] * number(k0[i])
            scores[t] = s0 * step(keys_at + t * stride + step_at)

    @njit(**OPTIONS)
    def score(q, keys_at, stride, step_at, count, scores):  # type: ignore[no-untyped-def]
        """q times every key. With a width that is known, the loop over it is unrolled: 1.4 times as fast."""
        if q.size == 64:
            score_all(q, keys_at, stride, step_at, count, scores, 64)
        else:
            score_all(q, keys_at, stride, step_at, count, scores, q.size)

    @njit(inline="always", **OPTIONS)
    def weigh_all(weights, values_at, stride, step_at, count, out, width):  # type: ignore[no-untyped-def]
        for i in range(width):
            out[i] = f32(0)
        blocks = count // 4 * 4
        for t in range(0, blocks, 4):
            v0 = vector(values_at + t * stride, width)
            v1 = vector(values_at + (t + 1) * stride, width)
            v2 = vector(values_at + (t + 2) * stride, width)
            v3 = vector(values_at + (t + 3) * stride, width)
            at = values_at + t * stride + step_at
            w0, w1 = weights[t] * step(at), weights[t + 1] * step(at + stride)
            w2, w3 = weights[t + 2] * step(at + 2 * stride), weights[t + 3] * step(at + 3 * stride)
            for i in range(width):
                out[i] += w0 * number(v0[i]) + w1 * number(v1[i]) + w2 * number(v2[i]) + w3 * number(v3[i])
        for t in range(blocks, count):
            v0 = vector(values_at + t * stride, width)
            w0 = weights[t] * step(values_at + t * stride + step_at)
            for i in range(width):
                out[i] += w0 * number(v0[i])

    @njit(**OPTIONS)
    def weigh(weights, values_at, stride, step_at, count, out):  # type: ignore[no-untyped-def]
        """The sum of the values, each times its weight."""
        if out.size == 64:
            weigh_all(weights, values_at, stride, step_at, count, out, 64)
        else:
            weigh_all(weights, values_at, stride, step_at, count, out, out.size)

    return score, weigh


_score32, _weigh32 = _reader(floats, _number, _one)
_score16, _weigh16 = _reader(halves, as_float32, _one)
_score8, _weigh8 = _reader(int8s, _number, _float_at)


@compiled()
def _store(x, at, stored, step_at):  # type: ignore[no-untyped-def]
    """A new key or value into the cache, as `clearhead.nn.to_stored` does."""
    width = x.size
    if stored == 0:
        to = floats(at, width)
        for i in range(width):
            to[i] = x[i]
    elif stored == 1:
        to16 = halves(at, width)
        for i in range(width):
            to16[i] = as_bfloat16(x[i])
    else:
        most, bad = f32(0), f32(0)
        for i in range(width):
            most = max(most, abs(x[i]))
            bad += x[i] * f32(0)
        step = (most + bad) / f32(127)
        to8 = int8s(at, width)
        divisor = max(step, f32(1.1754944e-38))
        for i in range(width):
            to8[i] = np.int8(np.rint(x[i] / divisor))
        floats(at + step_at, 1)[0] = step


@compiled("Tuple((float64, int64))(int64, int64, int64, int64, int64, int64, int64, int64, float64)")
def attend(params, q_at, k_at, v_at, cos_at, sin_at, mask_at, n, scale):  # type: ignore[no-untyped-def]
    """Rotate, append the new key and value of each row, and attend with every query of a row.

    `n` counts the steps since the step was captured: `length` grows by it, and so does the place to append.
    """
    p = integers(params, 44)
    batch, heads, kv_heads, queries, width = p[0], p[1], p[2], p[3], p[4]
    length = p[28] + n * p[29]
    first = max(length - p[30], 0) if p[30] else 0
    count = length - first
    size = 2 if p[37] else 4
    stored, step_at = p[42], p[43]
    kept = 4 >> stored  # bytes of a cached number
    keys_stride, values_stride = kept * p[15], kept * p[19]
    per, rotated = heads // kv_heads, p[25]
    for b in range(batch):
        cos = floats(cos_at + 4 * b * p[27], rotated)
        sin = floats(sin_at + 4 * b * p[27], rotated)
        scores = floats(p[35], count)
        q = floats(p[35] + 4 * count, width)
        out = floats(p[35] + 4 * (count + width), width)
        if p[24]:
            for g in range(kv_heads):
                new = length - 1
                copy_in(q, k_at + size * (b * p[8] + g * p[9]), p[37])
                if rotated:
                    _rotate(q, cos, sin, rotated, p[26])
                _store(q, p[12] + kept * (b * p[13] + g * p[14]) + new * keys_stride, stored, step_at)
                copy_in(q, v_at + size * (b * p[10] + g * p[11]), p[37])
                _store(q, p[16] + kept * (b * p[17] + g * p[18]) + new * values_stride, stored, step_at)
        for h in range(heads):
            keys_at = p[12] + kept * (b * p[13] + (h // per) * p[14]) + first * keys_stride
            values_at = p[16] + kept * (b * p[17] + (h // per) * p[18]) + first * values_stride
            for query in range(queries):
                copy_in(q, q_at + size * (b * p[5] + h * p[6] + query * p[7]), p[37])
                if rotated:
                    _rotate(q, cos, sin, rotated, p[26])
                for i in range(width):
                    q[i] *= f32(scale)
                if stored == 0:
                    _score32(q, keys_at, keys_stride, step_at, count, scores)
                elif stored == 1:
                    _score16(q, keys_at, keys_stride, step_at, count, scores)
                else:
                    _score8(q, keys_at, keys_stride, step_at, count, scores)
                if p[31]:
                    at = b * (p[32] + n * p[39]) + h * (p[33] + n * p[40]) + query * (p[34] + n * p[41])
                    _mask(scores, mask_at, at, p[31], count)
                _softmax(scores, count)
                if stored == 0:
                    _weigh32(scores, values_at, values_stride, step_at, count, out)
                elif stored == 1:
                    _weigh16(scores, values_at, values_stride, step_at, count, out)
                else:
                    _weigh8(scores, values_at, values_stride, step_at, count, out)
                target = p[21] * b + p[22] * h + p[23] * query
                if p[38]:
                    to16 = halves(p[20] + 2 * target, width)
                    for i in range(width):
                        to16[i] = as_bfloat16(out[i])
                else:
                    to = floats(p[20] + 4 * target, width)
                    for i in range(width):
                        to[i] = out[i]
    if p[36] != 0:  # a single row
        return int8_range(floats(p[20], heads * width), p[36])
    return 0.0, np.int64(0)
