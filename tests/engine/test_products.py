"""Products: every candidate multiplies by the matrix it says, as exactly as its rounding allows."""

import pytest
import torch
from packed import assert_near_weights, assert_within_rounding
from torch import Tensor

from clearhead.engine.int4 import Int4Product, dequantize, quantize_groups
from clearhead.engine.int8 import DequantizedProduct, Int8Product, quantize_rows
from clearhead.engine.precision import candidates
from clearhead.engine.products import BoundProduct, FusedProduct, Pack, PlainFloat32, Product

SHAPES = [(768, 768), (96, 3072), (33, 100), (7, 5), (64, 1), (1, 64)]
PACKS: dict[str, Pack] = {pack.name: pack for name in ("float32", "bfloat16") for pack in candidates(name)}
PACKS |= {
    "int8 symmetric": lambda w, b: Int8Product.of(w, b, "symmetric"),
    "int8 asymmetric": lambda w, b: Int8Product.of(w, b, "asymmetric"),
    "int8 split": lambda w, b: Int8Product.of(w, b, "split"),
    "int8 as floats": lambda w, b: DequantizedProduct(quantize_rows(w), b),
    "int4": lambda w, b: Int4Product(quantize_groups(w), b),
}
# Rows of a batch have other bits than alone: sums of floats in an order that depends on their number.
BY_SHAPE = {"packed float32", "float32 by inputs", "float32", "packed float32, rounded to bfloat16"} | {
    "packed bfloat16", "bfloat16", "int8 as floats", "int8 asymmetric",
}  # fmt: skip
packs = pytest.mark.parametrize("name", PACKS)


def pack(name: str, weight: Tensor, bias: Tensor | None) -> Product:
    try:
        product = PACKS[name](weight, bias)
        product(weight[:1])
    except RuntimeError as error:
        pytest.skip(f"this CPU has no {name}: {error}")
    return product


shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def matrix(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@packs
@shapes
@pytest.mark.parametrize("bias", ["without a bias", "with a bias"])
def test_a_product_is_within_its_rounding(name: str, shape: tuple[int, int], bias: str) -> None:
    weight, added = matrix(*shape), matrix(shape[0], seed=1)
    product = pack(name, weight, None if bias == "without a bias" else added)
    assert product.out_features == shape[0]
    assert_near_weights(product, weight)
    for rows in (1, 2, 7, 70):
        x = matrix(rows, shape[1], seed=2) * matrix(rows, 1, seed=3).exp() + matrix(rows, 1, seed=4)
        y = product(x)
        assert y.shape == (rows, shape[0]) and y.dtype == torch.float32
        assert_within_rounding(product, x, y, added * (bias == "with a bias"))


@packs
def test_weights_in_any_layout_and_number_make_the_same_product(name: str) -> None:
    weight, x = matrix(48, 40).bfloat16().float(), matrix(3, 40, seed=1)
    wide = torch.cat([matrix(40, 9), weight.T], dim=1)
    y = pack(name, weight, None)(x)
    for other in (weight.t().contiguous().t(), wide[:, 9:].t(), weight.bfloat16()):
        assert torch.equal(PACKS[name](other, None)(x), y)


@pytest.mark.parametrize("name", [name for name in PACKS if name not in BY_SHAPE])
@shapes
def test_a_row_has_the_same_bits_in_every_batch(name: str, shape: tuple[int, int]) -> None:
    product = pack(name, matrix(*shape), matrix(shape[0], seed=1))
    x = matrix(130, shape[1], seed=2) * torch.logspace(-3, 3, 130)[:, None]
    alone = torch.cat([product(row[None]) for row in x])
    for rows in (2, 5, 16, 64, 130):
        assert torch.equal(product(x[:rows]), alone[:rows]), rows
    assert torch.equal(product(x.view(2, 65, -1)).flatten(0, 1), alone)


@packs
def test_the_rows_beside_it_change_no_bit(name: str) -> None:
    product = pack(name, matrix(96, 200), matrix(96, seed=1))
    x, other = matrix(20, 200, seed=2), matrix(20, 200, seed=3) * 100
    other[7] = x[7]
    assert torch.equal(product(x)[7], product(other)[7])


@pytest.mark.parametrize("shape", [*SHAPES, (2000, 32)], ids=str)
def test_the_matrix_of_an_int4_product_is_found_again(shape: tuple[int, int]) -> None:
    weights = quantize_groups(matrix(*shape))
    assert torch.equal(Int4Product(weights).dequantized(), dequantize(weights))


def test_quantizing_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [matrix(70, 33), matrix(5, 33, seed=1).bfloat16(), matrix(1, 33, seed=2)]
    whole = quantize_rows(torch.cat([weight.float() for weight in weights]))
    monkeypatch.setattr("clearhead.engine.int8.ROWS_CHUNK", 100)
    parts = quantize_rows(*weights)
    assert all(torch.equal(one, two) for one, two in zip(whole, parts, strict=True))


class Counting(Product):
    """How often it was computed."""

    name = "counting"

    def __init__(self, outputs: int) -> None:
        self.count, self.outputs = 0, outputs

    def multiply(self, x: Tensor) -> Tensor:
        self.count += 1
        return x.sum(-1, keepdim=True) * torch.arange(1.0, self.outputs + 1)


def test_a_fused_product_is_computed_once_for_all_layers() -> None:
    product = Counting(6)
    fused, x = FusedProduct(product, [1, 2, 3]), torch.ones(2, 4)
    parts = [fused.output(i, x) for i in range(3)]
    assert torch.equal(torch.cat(parts, -1), product.multiply(x)) and product.count == 2


def test_a_layer_that_left_leaves_no_activation_behind() -> None:
    """Its slice would never be asked for, and be kept with the input until the next call."""
    weights = [matrix(2, 4), matrix(3, 4, seed=1)]
    fused = FusedProduct(PlainFloat32(torch.cat(weights), None), [2, 3])
    one, two = (BoundProduct(fused, i, weight, None) for i, weight in enumerate(weights))
    x = matrix(5, 4, seed=2)
    with torch.no_grad():
        weights[0].mul_(2)
        assert not one.fits(x, weights[0], None) and two.fits(x, weights[1], None)
        torch.testing.assert_close(two(x), x @ weights[1].T)
        assert fused._pending == (None, {})
        torch.testing.assert_close(two(x), x @ weights[1].T)


def test_a_layer_that_lost_its_bias_is_another_layer() -> None:
    weight, bias, x = matrix(2, 4), matrix(2, seed=1), matrix(1, 4, seed=2)
    bound = BoundProduct(FusedProduct(PlainFloat32(weight, bias), [2]), 0, weight, bias)
    assert bound.fits(x, weight, bias) and not bound.fits(x, weight, None)
    without = BoundProduct(FusedProduct(PlainFloat32(weight, None), [2]), 0, weight, None)
    assert without.fits(x, weight, None) and not without.fits(x, weight, bias)
