"""Int4 weights: how near they are, which matrices they keep exactly, and the product with them."""

import logging
from collections.abc import Iterator

import gguf
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import clearhead
from clearhead.engine import int4
from clearhead.engine.int4 import (
    Int4Product,
    Int4Weights,
    dequantize,
    input_squares,
    is_available,
    quantize_groups,
)
from clearhead.errors import InputError
from clearhead.nn import TokenLogits

SHAPES = [(768, 768), (80, 96), (64, 32), (33, 100), (7, 5), (1, 1)]
BFLOAT16 = 1.6e-2  # twice the rounding of an input and of the result, as torch's own tests of the product


def matrix(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rounded_plainly(weight_OI: Tensor) -> Tensor:
    """The textbook's way: from the least to the greatest weight of each group in 15 equal steps."""
    parts = []
    for group in weight_OI.float().split(32, dim=1):
        low, high = group.aminmax(dim=1, keepdim=True)
        scale = ((high - low) / 15).bfloat16().float()
        zero = (low + 8 * scale).bfloat16().float()
        codes = ((group - zero) / torch.where(scale == 0, 1.0, scale) + 8).round().clamp(0, 15)
        parts.append((codes - 8) * scale + zero)
    return torch.cat(parts, dim=1)


def weighted_errors(weight_OI: Tensor, approximate_OI: Tensor, importance_I: Tensor) -> list[Tensor]:
    """One per row and group."""
    errors = (weight_OI.double() - approximate_OI.double()).square() * importance_I.double()
    return [group.sum(1) for group in errors.split(32, dim=1)]


def on_grid(outputs: int, inputs: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Codes, each of a group's least and greatest among them, and weights d * code + m."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, (outputs, inputs // 32, 32), generator=generator)
    codes[..., 3], codes[..., 17] = 0, 15
    d = torch.rand(outputs, inputs // 32, 1, generator=generator).add(0.01).half().float()
    m = (-d * 15 * torch.rand(outputs, inputs // 32, 1, generator=generator)).half().float()
    return codes.flatten(1), (codes * d + m).flatten(1)


# The quantizer


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_codes_scales_and_zero_points_have_the_promised_form(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    found = quantize_groups(matrix(*shape).to(dtype))
    groups = -(-shape[1] // 32)
    assert found.codes_OI.shape == shape and found.codes_OI.dtype == torch.uint8
    assert int(found.codes_OI.max()) <= 15 and found.codes_OI.is_contiguous()
    for steps in (found.scale_OG, found.zero_OG):
        assert steps.shape == (shape[0], groups) and steps.dtype == torch.bfloat16
    weight = dequantize(found)
    assert weight.shape == shape and weight.dtype == torch.float32


@given(
    outputs=st.integers(1, 9),
    inputs=st.integers(1, 100),
    seed=st.integers(0, 2**16),
    tails=st.floats(0, 3),
    shift=st.sampled_from([0.0, 0.5, -100.0]),
)
def test_no_group_is_worse_than_plain_rounding(
    outputs: int, inputs: int, seed: int, tails: float, shift: float
) -> None:
    weight = matrix(outputs, inputs, seed=seed) * (tails * matrix(outputs, inputs, seed=seed + 1)).exp()
    weight = weight + shift
    importance = (3 * matrix(inputs, seed=seed + 2)).exp()
    counted = importance.clamp(min=float(importance.mean()) * 1e-3)
    pairs = zip(
        weighted_errors(weight, dequantize(quantize_groups(weight, importance)), counted),
        weighted_errors(weight, rounded_plainly(weight), counted),
        strict=True,
    )
    # Which one is smaller was decided by float32 sums.
    assert all(bool((searched <= plain * 1.00001 + 1e-12).all()) for searched, plain in pairs)


def test_the_search_is_worth_it() -> None:
    """Against plain rounding: a quarter less error, and where importance differs a third."""
    weight, importance = matrix(256, 256), (1.5 * matrix(256, seed=1)).exp()

    def error(found: Tensor, by: Tensor) -> float:
        return float(sum(group.sum() for group in weighted_errors(weight, found, by)))

    plain, same = rounded_plainly(weight), torch.ones(256)
    assert error(dequantize(quantize_groups(weight)), same) < 0.83 * error(plain, same)
    weighted = dequantize(quantize_groups(weight, importance))
    assert error(weighted, importance) < 0.66 * error(plain, importance)
    assert error(weighted, importance) < 0.85 * error(dequantize(quantize_groups(weight)), importance)


def test_the_search_finds_what_trying_everything_finds() -> None:
    """A thousand scales and zero points per group: within three percent of the best of them."""
    weight = matrix(24, 32)
    low, high = weight.aminmax(dim=1)
    best = torch.full((24,), float("inf"))
    for wide in torch.linspace(0.6, 1.1, 60):
        for shift in torch.linspace(-0.25, 0.25, 60):
            scale = (high - low) * wide / 15
            zero = (low + high) / 2 + scale / 2 + shift * (high - low)
            codes = ((weight - zero[:, None]) / scale[:, None] + 8).round().clamp(0, 15)
            error = ((codes - 8) * scale[:, None] + zero[:, None] - weight).square().sum(1)
            best = torch.minimum(best, error)
    found = (dequantize(quantize_groups(weight)) - weight).square().sum(1)
    assert float(found.sum()) < 1.03 * float(best.sum())


@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_a_matrix_on_a_grid_keeps_its_codes(weighted: bool) -> None:
    codes, weight = on_grid(64, 320)
    found = quantize_groups(weight, matrix(320).exp() if weighted else None)
    assert torch.equal(found.codes_OI.long(), codes)
    # Scale and zero point are rounded by up to 2 ** -8 of themselves, and codes are up to 8 scales from the
    # zero point, which is fitted to the rounded scale.
    scale = found.scale_OG.float().repeat_interleave(32, 1)
    zero = found.zero_OG.float().repeat_interleave(32, 1)
    bound = (2 * 8 * scale.abs() + zero.abs()) * 2**-8
    assert bool(((dequantize(found) - weight).abs() <= bound).all())


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_a_matrix_from_a_gguf_file_loses_bfloat16_rounding_only(kind: str) -> None:
    """The blocks are those of llama.cpp's own package. Half a step of rounding again would be 0.29 steps."""
    format = getattr(gguf.GGMLQuantizationType, kind)
    blocks = gguf.quants.quantize(matrix(128, 256).numpy(), format)
    weight = torch.from_numpy(np.array(gguf.quants.dequantize(blocks, format)))
    found = quantize_groups(weight)
    again = (dequantize(found) - weight) / found.scale_OG.float().repeat_interleave(32, 1)
    assert float(again.square().mean().sqrt()) < 0.01
    assert float(again.abs().max()) < 0.05


def test_constant_groups() -> None:
    weight = torch.tensor([[0.0], [1.0], [-0.3], [1e-35], [300.0]]).expand(5, 70).clone()
    weight[:, 32:64] = 0
    weights = quantize_groups(weight)
    found = dequantize(weights)
    torch.testing.assert_close(found, weight, rtol=2**-8, atol=1e-30)
    assert bool((weights.codes_OI == 8).all())  # a group without a range is its zero point
    assert torch.equal(found[0], weight[0]) and torch.equal(found[1], weight[1])


def test_rows_are_quantized_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing depends on how many rows are searched at once."""
    weight, importance = matrix(40, 96), matrix(96, seed=1).exp()
    whole = quantize_groups(weight, importance)
    monkeypatch.setattr(int4, "SEARCH_CHUNK", 7 * 96)
    parts = quantize_groups(weight, importance)
    for name in ("codes_OI", "scale_OG", "zero_OG"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))


def test_only_the_ratio_of_importances_counts() -> None:
    weight = matrix(8, 64)
    same = quantize_groups(weight)
    for importance in (torch.full((64,), 7.5), torch.zeros(64)):
        assert torch.equal(quantize_groups(weight, importance).codes_OI, same.codes_OI)


@pytest.mark.parametrize(
    "weight, words",
    [
        (torch.tensor([[1.0, float("nan")]]), "(1, 2) has 1 NaN and 0 infinite values"),
        (torch.tensor([[1.0, -float("inf")]]), "0 NaN and 1 infinite"),
        (torch.tensor([[1e300, 0.0]], dtype=torch.float64), "beyond 1e38"),
        (torch.zeros(3), "given float32 (3,)"),
        (torch.zeros(3, 3, dtype=torch.int64), "given int64 (3, 3)"),
        (torch.zeros(0, 3), "given float32 (0, 3)"),
    ],
    ids=["nan", "inf", "large", "a vector", "whole numbers", "empty"],
)
def test_a_weight_that_cannot_be_quantized_is_one_line(weight: Tensor, words: str) -> None:
    with pytest.raises(InputError) as caught:
        quantize_groups(weight)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "importance, words",
    [
        (torch.ones(5), "given (5,)"),
        (torch.tensor([1.0, -1.0, 1.0, 1.0]), "negative"),
        (torch.tensor([1.0, float("nan"), 1.0, 1.0]), "NaN"),
    ],
    ids=["length", "negative", "nan"],
)
def test_an_importance_that_cannot_be_used_is_one_line(importance: Tensor, words: str) -> None:
    with pytest.raises(InputError, match="importance") as caught:
        quantize_groups(matrix(3, 4), importance)
    assert words in str(caught.value)


# The product


@pytest.fixture(params=["operator", "floats"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """torch's operator, and what replaces it where it is missing."""
    if request.param == "floats":
        monkeypatch.setattr(int4, "is_available", lambda: False)
    yield request.param


def assert_near(found: Tensor, expected: Tensor) -> None:
    """Within bfloat16 of the length of a row: a sum near zero is as far off as the largest one."""
    scale = expected.float().square().mean().sqrt()
    torch.testing.assert_close(
        found.float(), expected.float(), rtol=BFLOAT16, atol=float(BFLOAT16 * scale) + 1e-30
    )


def test_torch_still_has_the_product() -> None:
    """Red on the day torch retires or changes the operator: then `_pack` and `_operator` need another one."""
    is_available.cache_clear()
    assert is_available()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_product_is_that_of_the_dequantized_matrix(
    shape: tuple[int, int], dtype: torch.dtype, way: str
) -> None:
    weights, bias = quantize_groups(matrix(*shape)), matrix(shape[0], seed=1)
    x = matrix(2, 3, shape[1], seed=2).to(dtype)
    for found_bias in (None, bias):
        found = Int4Product(weights, found_bias)(x)
        assert found.dtype == dtype and found.shape == (2, 3, shape[0])
        assert_near(found, F.linear(x.float(), dequantize(weights), found_bias))


@given(outputs=st.integers(1, 150), inputs=st.integers(1, 150), rows=st.integers(0, 9))
def test_any_size_and_any_number_of_rows(outputs: int, inputs: int, rows: int) -> None:
    weights = quantize_groups(matrix(outputs, inputs))
    x = matrix(rows, inputs, seed=rows)
    found = Int4Product(weights)(x)
    assert found.shape == (rows, outputs)
    assert Int4Product(weights)(x.bfloat16()).is_contiguous()
    if rows:
        assert_near(found, x @ dequantize(weights).T)


def test_both_ways_differ_in_the_last_digit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, x = quantize_groups(matrix(300, 200)), matrix(16, 200, seed=1).bfloat16()
    fast = Int4Product(weights)
    monkeypatch.setattr(int4, "is_available", lambda: False)
    slow = Int4Product(weights)
    assert slow.bytes == fast.bytes
    apart = (fast(x).float() - slow(x).float()).norm() / slow(x).float().norm()
    assert float(apart) < 2**-8


@pytest.mark.parametrize("shape", [(768, 768), (80, 96), (33, 100)], ids=str)
def test_a_row_alone_is_the_row_in_a_batch(shape: tuple[int, int], way: str) -> None:
    product = Int4Product(quantize_groups(matrix(*shape)), matrix(shape[0], seed=1))
    x = matrix(64, shape[1], seed=2) * torch.logspace(-3, 3, 64)[:, None]
    together = product(x)
    for rows in (1, 2, 3, 4, 16):
        assert torch.equal(torch.cat([product(part) for part in x.split(rows)]), together)
    assert torch.equal(product(x.view(4, 16, -1)).view(64, -1), together)


def test_rows_that_are_a_view_are_copied(way: str) -> None:
    weights, wide = quantize_groups(matrix(48, 64)), matrix(6, 128, seed=1)
    product = Int4Product(weights)
    for x in (wide[:, 64:], wide[:, ::2], matrix(64, 6, seed=2).T, wide.bfloat16()[:, 64:]):
        assert torch.equal(product(x), product(x.contiguous()))


@pytest.mark.parametrize("bias", [None, matrix(3072)], ids=["without a bias", "with a bias"])
def test_five_bits_per_weight(bias: Tensor | None, way: str) -> None:
    product = Int4Product(quantize_groups(matrix(3072, 96)), bias)
    assert product.bytes == 3072 * 96 * 5 // 8 + (0 if bias is None else 4 * 3072)


def test_inputs_of_another_width_are_one_line(way: str) -> None:
    product = Int4Product(quantize_groups(matrix(16, 64)))
    with pytest.raises(InputError, match="the input is 32 wide; this int4 matrix takes 64"):
        product(matrix(2, 32))


@pytest.mark.parametrize("broken", ["missing", "wrong"])
def test_without_the_operator_there_is_one_warning(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(codes_OI: Tensor) -> Tensor:
        raise AttributeError("torch has no such operator")

    def shuffled(codes_OI: Tensor, pack=int4._pack) -> Tensor:
        return pack(codes_OI.flip(0))

    monkeypatch.setattr(int4, "_pack", missing if broken == "missing" else shuffled)
    is_available.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "clearhead.engine"):
            products = [Int4Product(quantize_groups(matrix(16, 32, seed=i))) for i in range(3)]
        assert [record.name for record in caplog.records] == ["clearhead.engine"]
        words = "no such operator" if broken == "missing" else "its result is wrong"
        assert "no fast int4 product on this machine" in caplog.text and words in caplog.text
        weights, x = quantize_groups(matrix(16, 32)), matrix(3, 32, seed=9)
        assert_near(products[0](x), x @ dequantize(weights).T)
    finally:
        is_available.cache_clear()


def test_weights_are_dequantized_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int4, "is_available", lambda: False)
    product, x = Int4Product(quantize_groups(matrix(100, 70))), matrix(5, 70, seed=1)
    whole, sizes = product(x), []

    def noted(weights: Int4Weights, dequantize=dequantize) -> Tensor:
        sizes.append(weights.codes_OI.numel())
        return dequantize(weights)

    monkeypatch.setattr(int4, "DEQUANTIZED_CHUNK", 1000)
    monkeypatch.setattr(int4, "dequantize", noted)
    assert torch.equal(product(x), whole)
    assert len(sizes) > 1 and max(sizes) <= 1000


# What the layers are given


def test_input_squares_are_those_of_each_layer() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x, more = matrix(2, 5, 4), matrix(7, 4, seed=1)
    found = input_squares(model, lambda: (model(x), model(more)))
    rows = torch.cat((x.flatten(0, 1), more))
    with torch.no_grad():
        inner = model[1](model[0](rows))
    assert list(found) == [model[0], model[2]]
    torch.testing.assert_close(found[model[0]], rows.square().mean(0))
    torch.testing.assert_close(found[model[2]], inner.square().mean(0))


def test_layers_that_are_not_called_are_left_out_and_hooks_do_not_stay() -> None:
    model = nn.ModuleDict({"called": nn.Linear(4, 4), "not called": nn.Linear(4, 4)})

    def fails() -> None:
        model["called"](matrix(1, 4))
        raise RuntimeError("stop")

    assert list(input_squares(model, lambda: model["called"](matrix(1, 4)))) == [model["called"]]
    with pytest.raises(RuntimeError, match="stop"):
        input_squares(model, fails)
    assert not model["called"]._forward_pre_hooks


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_input_squares_of_a_head_are_what_its_matrix_is_multiplied_by(family: str) -> None:
    """Read off torch's own call: the last `F.linear` of a pass is the product with the vocabulary."""
    model = tiny(family)
    ids = torch.tensor([[1, 2, 3, 4]])
    calls: list[tuple[Tensor, Tensor]] = []

    def noted(x: Tensor, weight: Tensor, bias: Tensor | None = None, linear=F.linear) -> Tensor:
        calls.append((x.detach(), weight.detach()))
        return linear(x, weight, bias)

    run = (lambda: model(ids, ids)) if family == "t5" else (lambda: model(ids))
    found = input_squares(model, run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "linear", noted)
        run()
    assert isinstance(model.head, TokenLogits)
    x, weight = calls[-1]
    assert weight.shape[0] == 32
    torch.testing.assert_close(found[model.head], x.flatten(0, -2).square().mean(0))
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert set(found) == {*linear, model.head}


def tiny(family: str) -> nn.Module:
    sizes = {
        "gpt2": {"vocab_size": 32, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16},
        "bert": {
            "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 32,
        },
        "t5": {"vocab_size": 32, "d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32},
    }  # fmt: skip
    return clearhead.build(family, **sizes[family]).model


@pytest.mark.skipif(not int4.is_available(), reason="torch has no int4 product on this machine")
@pytest.mark.parametrize("shape", [(7, 5), (16, 32), (80, 64), (130, 96), (200, 40)], ids=str)
def test_codes_are_read_back_from_the_order_of_the_operator(shape: tuple[int, int]) -> None:
    """Also where that order is not known: then by multiplying with it."""
    weights = quantize_groups(torch.randn(shape, generator=torch.Generator().manual_seed(1)))
    product = Int4Product(weights)
    assert int4.packed_block() in (16, 32, 64)
    for codes in (product._codes(), product._measured_codes()):
        assert torch.equal(codes[: shape[0], : shape[1]], weights.codes_OI)
    assert torch.equal(product.dequantized(), dequantize(weights))
