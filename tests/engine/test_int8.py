"""Int8 products: how far they are from the exact product, that rows do not see each other."""

import logging

import pytest
import torch
from torch import Tensor

from clearhead.engine import int8
from clearhead.engine.int8 import Int8Product, can_pack, quantize_rows

SHAPES = [(2304, 768), (768, 3072), (512, 2048), (384, 384), (7, 5), (1, 1)]


def matrix(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def apart(one: Tensor, two: Tensor) -> float:
    return float((one - two).norm() / two.norm())


@pytest.mark.skipif("x86" not in torch.backends.quantized.supported_engines, reason="needs an x86 processor")
def test_torch_still_has_the_quick_product() -> None:
    """Red on the day torch retires or changes the operator: then `_pack` and `_multiply` need another one."""
    can_pack.cache_clear()
    assert can_pack()
    x, weight = matrix(3, 64), matrix(10, 64, seed=1)
    # Whole numbers within the steps lose nothing on the way in: what is left is float32 arithmetic.
    whole = (x * 20).round()
    product = int8._multiply(whole, int8._pack(*quantize_rows(weight)), step=1.0)
    torch.testing.assert_close(product, whole @ dequantized(weight).T, atol=1e-3, rtol=1e-5)


def dequantized(weight: Tensor) -> Tensor:
    whole, scale = quantize_rows(weight)
    return whole * scale[:, None]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_weight_is_at_most_half_a_step_away(shape: tuple[int, int]) -> None:
    weight = matrix(*shape)
    whole, scale = quantize_rows(weight)
    assert whole.dtype == torch.int8 and whole.is_contiguous()
    assert bool(((weight - whole * scale[:, None]).abs() <= scale[:, None] * 0.5001).all())
    assert quantize_rows(torch.zeros(2, 3))[0].tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("inputs", ["symmetric", "asymmetric", "split"])
def test_a_layer_is_near_the_exact_product(shape: tuple[int, int], inputs: int8.InputQuantization) -> None:
    weight, bias, x = matrix(*shape), matrix(shape[0], seed=1), matrix(4, 3, shape[1], seed=2)
    layer = Int8Product.of(weight, bias, inputs)
    against_rounded_weights = apart(layer(x), x @ dequantized(weight).T + bias)
    assert against_rounded_weights < (1e-4 if inputs == "split" else 0.02)
    assert apart(layer(x), x @ weight.T + bias) < 0.03
    assert apart(Int8Product.of(weight, None, inputs)(x), x @ weight.T) < 0.03


def test_split_inputs_survive_an_outlier() -> None:
    """One channel a thousand times the others leaves them a step or none; what is left over saves them."""
    weight, x = matrix(64, 256), matrix(8, 256, seed=1)
    x[:, 7] = 1000.0
    weight[:, 7] = 0.001 * weight[:, 7]
    exact = x @ dequantized(weight).T
    assert apart(Int8Product.of(weight, None, "symmetric")(x), exact) > 0.1
    assert apart(Int8Product.of(weight, None, "split")(x), exact) < 0.02


@pytest.mark.parametrize("inputs", ["symmetric", "split"])
def test_a_row_alone_is_the_row_in_a_batch(inputs: int8.InputQuantization) -> None:
    layer = Int8Product.of(matrix(48, 32), matrix(48, seed=1), inputs)
    x = matrix(6, 5, 32, seed=2) * torch.logspace(-3, 3, 6)[:, None, None]
    together = layer(x)
    for row in range(6):
        assert torch.equal(layer(x[row : row + 1]), together[row : row + 1])


@pytest.mark.parametrize("bias", [None, matrix(48, seed=1)], ids=["without a bias", "with a bias"])
def test_a_fitted_row_alone_is_rounded_as_in_a_batch(bias: Tensor | None) -> None:
    """One number a step away would change an answer by up to 1/255 of a weight: far more than the bound."""
    layer = Int8Product.of(matrix(48, 768), bias, "asymmetric")
    x = matrix(600, 768, seed=2) * matrix(600, 1, seed=3).exp() + matrix(600, 1, seed=4)
    together, alone = layer(x), torch.cat([layer(row[None]) for row in x])
    size = x.abs().amax(1, keepdim=True)
    assert float(((together - alone) / size).abs().max()) < 2e-5


def test_fitted_steps_are_between_the_least_and_the_greatest_number() -> None:
    """Numbers on one side of zero get twice as many steps as where both sides have the same."""
    weight, x = matrix(64, 256), matrix(32, 256, seed=1).abs()
    exact = x @ dequantized(weight).T
    fitted, plain = (
        apart(Int8Product.of(weight, None, kind)(x), exact) for kind in ("asymmetric", "symmetric")
    )
    assert fitted < 0.6 * plain


@pytest.mark.parametrize("inputs", ["symmetric", "asymmetric", "split"])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_no_number_stays_so(inputs: int8.InputQuantization, rows: int) -> None:
    """So that whoever looks at the logits of a damaged model can say it."""
    layer, x = Int8Product.of(matrix(8, 4), matrix(8, seed=1), inputs), matrix(rows, 4, seed=2)
    x[0, 2] = float("nan")
    assert bool(layer(x)[0].isnan().all()) and bool(layer(x)[1:].isfinite().all())


@pytest.mark.parametrize("inputs", ["symmetric", "asymmetric", "split"])
def test_zeros_and_half_precision(inputs: int8.InputQuantization) -> None:
    layer = Int8Product.of(matrix(8, 4), matrix(8, seed=1), inputs)
    assert torch.equal(layer(torch.zeros(1, 4)), layer.bias.expand(1, 8))
    assert torch.equal(layer(torch.zeros(2, 4)), layer.bias.expand(2, 8))
    assert layer(matrix(2, 4).bfloat16()).dtype == torch.bfloat16


def test_without_the_operator_it_says_so_once_and_computes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(*_: object) -> Tensor:
        raise RuntimeError("no such operator\nand a long trace")

    monkeypatch.setattr(int8, "_multiply", missing)
    can_pack.cache_clear()
    weight, bias, x = matrix(20, 30), matrix(20, seed=1), matrix(2, 30, seed=2)
    with caplog.at_level(logging.WARNING, "clearhead.engine"):
        one, two = Int8Product.of(weight, bias), Int8Product.of(weight, None)
    can_pack.cache_clear()
    (said,) = caplog.records
    assert said.getMessage().startswith("no fast int8 product on this machine (no such operator): weights")
    assert apart(one(x), x @ dequantized(weight).T + bias) < 1e-6
    assert apart(two(x), x @ dequantized(weight).T) < 1e-6
    assert two.bytes == 20 * 30 + 20 * 4
