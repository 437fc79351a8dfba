"""Fused operators: each agrees with its plain twin, alone and in the captured steps of whole models."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import zoo
from torch import Tensor

from clearhead import nn as cn
from clearhead.engine import PRECISIONS, fused, prepare_model
from clearhead.engine.int8 import INT8_LEVELS
from clearhead.generate import Beam, generate
from clearhead.generate.replay import fusion, replayer
from clearhead.generate.runner import DecoderRunner, Prompt
from clearhead.nn import CACHE_PRECISIONS, STEP_BYTES, CachePrecision, from_stored, to_stored
from clearhead.nn.rope import rotate_pairs

kernels: Any = fused.kernels()
pytestmark = pytest.mark.skipif(kernels is None, reason="needs numba: pip install 'clearhead[fast]'")
BF16 = pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bfloat16"])


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def params(names: tuple[str, ...], **values: Any) -> Any:
    integers = [v.data_ptr() if isinstance(v := values.get(n, 0), Tensor) else int(v) for n in names]
    return np.array(integers, dtype=np.int64)


def half_rows(x: Tensor) -> Tensor:
    """The bfloat16 numbers that an operator wrote into the memory of a float32 tensor."""
    return x.view(torch.bfloat16).flatten()[: x.numel()].view(x.shape).float()


@BF16
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("width", [1, 7, 64, 576])
@pytest.mark.parametrize("kind", ["layer", "layer without bias", "rms"])
def test_add_norm(kind: str, width: int, rows: int, bf16: bool) -> None:
    x, added = numbers(rows, width) * 3, numbers(rows, width, seed=1)
    weight, bias = numbers(width, seed=2), numbers(width, seed=3)
    given = added.bfloat16() if bf16 else added
    total, out = torch.empty(rows, width), torch.empty(rows, width)
    layer = kind != "rms"
    has_bias = kind == "layer"
    sizes = params(
        kernels.ADD_NORM, rows=rows, width=width, sum=total, out=out, weight=weight,
        bias=bias if has_bias else 0, centre=layer, added_bf16=bf16, out_bf16=bf16,
    )  # fmt: skip
    kernels.add_norm(sizes.ctypes.data, x.data_ptr(), given.data_ptr(), 1e-5)
    summed = x + given.float()
    wanted = (
        F.layer_norm(summed, (width,), weight, bias if has_bias else None)
        if layer
        else F.rms_norm(summed, (width,), weight, 1e-5)
    )
    assert torch.equal(total, summed)
    if bf16:
        torch.testing.assert_close(half_rows(out), wanted, atol=1e-5, rtol=2**-8)
    else:
        torch.testing.assert_close(out, wanted, atol=2e-5 if width > 1 else 1e-4, rtol=1e-5)


@BF16
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh", "relu"])
def test_gate(name: str, gated: bool, rows: int, bf16: bool) -> None:
    width = 37
    both = numbers(rows, 2 * width) * 6
    both[0, 0], both[0, 1] = 80.0, -80.0  # beyond what exp can show
    given = both.bfloat16() if bf16 else both
    out = torch.empty(rows, width)
    sizes = params(
        kernels.GATE, rows=rows, width=width, x_stride=2 * width, out=out, gated=gated, in_bf16=bf16,
        act=kernels.ACTIVATION_CODES[name],
    )  # fmt: skip
    up = given.data_ptr() + width * given.element_size()
    kernels.gate(sizes.ctypes.data, given.data_ptr(), up if gated else 0)
    x, other = given.float().split(width, dim=1)
    plain = cn.feedforward.ACTIVATIONS[name](x) * (other if gated else 1.0)
    torch.testing.assert_close(out, plain, atol=1e-5, rtol=1e-5)
    scratch = torch.empty(width)
    sizes[kernels.GATE.index("scratch")], sizes[kernels.GATE.index("out_bf16")] = scratch.data_ptr(), 1
    kernels.gate(sizes.ctypes.data, given.data_ptr(), up if gated else 0)
    torch.testing.assert_close(half_rows(out), plain, atol=1e-5, rtol=2**-8)


@pytest.mark.parametrize("row", [numbers(64), numbers(64).abs(), -numbers(64).abs(), torch.zeros(64)])
def test_the_range_of_a_row_is_that_of_the_product(row: Tensor) -> None:
    out = torch.empty(1, 64)
    sizes = params(
        kernels.GATE, rows=1, width=64, out=out, act=kernels.ACTIVATION_CODES["silu"], levels=INT8_LEVELS
    )
    step, zero = kernels.gate(sizes.ctypes.data, row.data_ptr(), 0)
    low, high = min(float(out.min()), 0.0), max(float(out.max()), 0.0)
    assert step == max((high - low) / INT8_LEVELS, 1e-30)
    assert zero == round(-low / step)


def test_what_is_no_number_stays_so() -> None:
    row, out = numbers(64), torch.empty(1, 64)
    row[5] = float("nan")
    sizes = params(kernels.GATE, rows=1, width=64, out=out, levels=INT8_LEVELS)
    step, zero = kernels.gate(sizes.ctypes.data, row.data_ptr(), 0)
    assert np.isnan(step) and zero == 0 and bool(out[0, 5].isnan())


@BF16
@pytest.mark.parametrize("mask", [None, "padding", "numbers", "nothing allowed"])
@pytest.mark.parametrize("window", [0, 4])
@pytest.mark.parametrize("pairing", [None, "halves", "neighbours"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attend(groups: int, pairing: str | None, window: int, mask: str | None, bf16: bool) -> None:
    """Over a cache of 11 keys with room for 16: rotated, appended, attended to."""
    batch, heads, width, length, room = 2, 4, 24, 11, 16
    row = (heads + 2 * groups) * width
    product = numbers(batch, 1, row)
    product = product.bfloat16() if bf16 else product
    q, k, v = (
        part.float().view(batch, 1, -1, width).transpose(1, 2)
        for part in product.split([heads * width, groups * width, groups * width], dim=-1)
    )
    keys, values = numbers(batch, groups, room, width, seed=1), numbers(batch, groups, room, width, seed=2)
    angle = numbers(batch, 1, 1, 16, seed=3)
    plain_keys, plain_values = keys.clone(), values.clone()
    if pairing:
        q, k = (rotate_pairs(x, angle.cos(), angle.sin(), pairing) for x in (q, k))
    plain_keys[:, :, length - 1 : length], plain_values[:, :, length - 1 : length] = k, v
    allowed = torch.ones(batch, 1, 1, length, dtype=torch.bool)
    if window:
        allowed[..., : length - window] = False
    given: Tensor | None = None
    added: Tensor | float = 0.0
    if mask == "padding":
        given = torch.ones(batch, 1, 1, length, dtype=torch.bool)
        given[1, ..., :8] = False
        allowed = allowed & given
    elif mask == "nothing allowed":
        given = torch.zeros(batch, 1, 1, length, dtype=torch.bool)
        allowed = allowed & given
    elif mask == "numbers":
        given = added = numbers(1, heads, 1, length, seed=4)
        given[..., 9] = float("-inf")
    sliced = given[..., -window:] if given is not None and window else given  # the mask of the keys used
    scores = (q @ plain_keys[:, :, :length].repeat_interleave(heads // groups, 1).mT) * 0.3 + added
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1).nan_to_num(0.0)
    wanted = weights @ plain_values[:, :, :length].repeat_interleave(heads // groups, 1)

    out, scratch = torch.empty(batch, 1, heads * width), torch.empty(room + 2 * width)
    cos, sin = angle.cos(), angle.sin()
    sizes = params(
        kernels.ATTEND, batch=batch, heads=heads, kv_heads=groups, queries=1, head_dim=width,
        q_batch=row, q_head=width, k_batch=row, k_head=width, v_batch=row, v_head=width,
        keys=keys, keys_batch=groups * room * width, keys_head=room * width, keys_token=width,
        values=values, values_batch=groups * room * width, values_head=room * width, values_token=width,
        out=out, out_batch=heads * width, out_head=width, append=True,
        rotated=16 if pairing else 0, neighbours=pairing == "neighbours", angle_batch=16,
        length=length - 2, grows=1, window=window, scores=scratch, in_bf16=bf16,
        mask_kind=0 if given is None else 1 if given.dtype == torch.bool else 2,
        mask_batch=length if given is not None and len(given) > 1 else 0,
        mask_head=length if given is not None and given.shape[1] > 1 else 0,
    )  # fmt: skip
    size, at = product.element_size(), product.data_ptr()
    kernels.attend(
        sizes.ctypes.data, at, at + size * heads * width, at + size * (heads + groups) * width,
        cos.data_ptr(), sin.data_ptr(), 0 if sliced is None else sliced.data_ptr(), 2, 0.3,
    )  # fmt: skip
    torch.testing.assert_close(keys, plain_keys)
    torch.testing.assert_close(values, plain_values)
    found = out.view(batch, heads, 1, width)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("width", [24, 30, 64])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_attend_over_a_cache_that_is_stored_in(precision: CachePrecision, groups: int, width: int) -> None:
    """Over 10 stored keys and a new one; the bytes that are stored of it are those of the plain twin."""
    heads, length, room = 4, 11, 16
    q, k, v = (
        numbers(1, heads, 1, width),
        numbers(1, groups, 1, width, seed=1),
        numbers(1, groups, 1, width, seed=2),
    )
    cache = [to_stored(numbers(1, groups, room, width, seed=seed), precision) for seed in (3, 4)]
    plain = [x.clone() for x in cache]
    for x, new in zip(plain, (k, v), strict=True):
        x[:, :, length - 1 : length] = to_stored(new, precision)
    keys, values = (from_stored(x[:, :, :length], precision, width, torch.float32) for x in plain)
    scores = (q @ keys.repeat_interleave(heads // groups, 1).mT) * 0.3
    wanted = scores.softmax(-1) @ values.repeat_interleave(heads // groups, 1)
    out, scratch = torch.empty(1, 1, heads * width), torch.empty(room + 2 * width)
    sizes = params(
        kernels.ATTEND, batch=1, heads=heads, kv_heads=groups, queries=1, head_dim=width,
        q_head=width, k_head=width, v_head=width, append=True, length=length, scores=scratch,
        keys=cache[0], keys_head=cache[0].stride(1), keys_token=cache[0].stride(2),
        values=cache[1], values_head=cache[1].stride(1), values_token=cache[1].stride(2),
        out=out, out_head=width,
        stored=kernels.STORED.index(precision), step_at=cache[0].shape[-1] - STEP_BYTES,
    )  # fmt: skip
    kernels.attend(sizes.ctypes.data, q.data_ptr(), k.data_ptr(), v.data_ptr(), 0, 0, 0, 0, 0.3)
    assert all(torch.equal(one, two) for one, two in zip(cache, plain, strict=True))
    torch.testing.assert_close(out.view(1, heads, 1, width), wanted, atol=1e-6, rtol=1e-5)


DECODERS = {f"decoder/{n}": m for n, m in zoo.DECODERS.items()}
DECODERS |= {f"pair/{n}": m for n, m in zoo.PAIRS.items()}


@pytest.mark.parametrize("cache", CACHE_PRECISIONS)
@pytest.mark.parametrize("padded", [False, True], ids=["even", "padded"])
@pytest.mark.parametrize("name", list(DECODERS))
def test_a_fused_step_is_the_plain_step(
    name: str, padded: bool, cache: CachePrecision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits of twelve forced tokens, of every model that can be replayed, beside those of the model."""
    fused_calls: list[str] = []
    line = fusion.Fusion._fused_line
    monkeypatch.setattr(
        fusion.Fusion, "_fused_line", lambda self, call: fused_calls.append(call.kernel) or line(self, call)
    )
    monkeypatch.setattr(replayer, "MIN_STEPS", 1)
    spec = DECODERS[name]
    model = prepare_model(spec.build(seed=3), "float32")
    model.cache_precision = cache
    is_pair = isinstance(spec, cn.EncoderDecoder)
    ids = zoo.ids(3, 7, 1)
    mask = torch.ones_like(ids)
    if padded:
        mask[1, :2], mask[2, :5] = 0, 0
    prompt = Prompt(ids, mask, torch.full((3, 1), 2) if is_pair else None)
    forced = zoo.ids(3, 12, 2)
    logits: dict[bool, Tensor] = {}
    with torch.inference_mode():
        for replay in (False, True):
            runner = DecoderRunner(model, prompt, 14, replay=replay)
            steps = [runner.prefill()] + [runner.step(forced[:, i : i + 1]) for i in range(12)]
            logits[replay] = torch.stack(steps)
    # A number between two steps of the cache may be rounded up in one and down in the other.
    most, mean = {"float32": (2e-5, 2e-5), "bfloat16": (2e-2, 2e-4), "int8": (2e-2, 2e-4)}[cache]
    torch.testing.assert_close(logits[True], logits[False], atol=most, rtol=1e-4)
    assert float((logits[True] - logits[False]).abs().mean()) < mean
    if name.split("/")[1] in ("Rope", "grouped", "kernel-Softmax", "norm-RMS", "window"):
        assert {"add_norm", "attend"} <= set(fused_calls)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["Rope", "order-pre", "order-post", "kernel-Softmax", "grouped", "norm-RMS"])
def test_beams_that_share_a_source_say_the_same_in_fused_steps(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several queries of one source are one call of attention, whose output is strided."""
    monkeypatch.setattr(replayer, "MIN_STEPS", 1)
    model = prepare_model(zoo.PAIRS[name].build(seed=3), precision)
    prompt = Prompt(zoo.ids(2, 7, 1), None, torch.full((2, 1), 2))
    scores = []
    for replay in (False, True):
        run = generate(model, prompt, strategy=Beam(3), limit=12, replay=replay)
        scores.append([[answer.score for answer in row] for row in run.finish()])
    torch.testing.assert_close(torch.tensor(scores[1]), torch.tensor(scores[0]), atol=0.02, rtol=0.01)


def test_operators_are_compiled_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba raises an error if no folder for its files can be written to."""
    from clearhead.engine.fused import numbers as operators

    njit = operators.njit

    def without_a_place(*signatures: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available for file")
        return njit(*signatures, **options)

    monkeypatch.setattr(operators, "njit", without_a_place)
    assert operators.compiled("int64(int64)")(lambda x: x + 1)(2) == 3
