"""Products of linear layers in training: oneDNN's are those of torch's own call, and taken where it pays."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tolerance import assert_close
from torch import Tensor

from clearhead.nn import heads, layers, products

HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")
needs_onednn = pytest.mark.skipif(not HAS_ONEDNN, reason="this torch was built without oneDNN's linear layer")


def tensors(*sizes: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    key = torch.Generator().manual_seed(0)
    x = torch.randn(*sizes, generator=key)
    return x, torch.randn(outputs, sizes[-1], generator=key), torch.randn(outputs, generator=key)


def gradients(linear: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
    """The output and the gradients, of a loss that weighs every output differently."""
    parts = [part.detach().clone().requires_grad_() for part in (x, weight, bias) if part is not None]
    y = linear(*parts, *([] if bias is not None else [None]))
    ramp = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y.detach(), *torch.autograd.grad((y * ramp).sum(), parts)]


@needs_onednn
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(
    ("sizes", "outputs"), [((7, 24), 40), ((3, 5, 40), 24), ((2, 3, 2, 16), 16), ((1, 33), 5)]
)
def test_output_and_gradients_are_those_of_torch_in_float64(
    sizes: tuple[int, ...], outputs: int, has_bias: bool
) -> None:
    x, weight, bias = tensors(*sizes, outputs=outputs)
    given = (x, weight, bias if has_bias else None)
    ours = gradients(products.OneDnnLinear.apply, *given)
    exact = gradients(F.linear, *(None if part is None else part.double() for part in given))
    for one, two in zip(ours, exact, strict=True):
        assert one.dtype == torch.float32 and one.is_contiguous()
        assert_close(one / two.abs().max(), (two / two.abs().max()).float())


@needs_onednn
def test_views_and_a_gradient_of_one_number_repeated() -> None:
    """What flows back from a sum has no memory of its own; inputs may be slices or transposed."""
    x, weight, bias = tensors(6, 10, 32, outputs=24)
    for view in (x[:, 2:7], x.transpose(0, 1), x[:, :, ::2]):
        parts = [view.detach().requires_grad_(), weight[:, : view.shape[-1]].requires_grad_(), bias]
        ours = torch.autograd.grad(products.OneDnnLinear.apply(*parts).sum(), parts[:2])
        theirs = torch.autograd.grad(F.linear(*parts).sum(), parts[:2])
        for one, two in zip(ours, theirs, strict=True):
            assert_close(one / 100, two / 100)


@needs_onednn
def test_what_is_frozen_gets_no_gradient() -> None:
    x, weight, bias = tensors(4, 16, outputs=8)
    y = products.OneDnnLinear.apply(x, weight.requires_grad_(), bias)
    y.sum().backward()
    assert x.grad is None and bias.grad is None and weight.grad is not None


@needs_onednn
def test_the_same_product_has_the_same_bits() -> None:
    x, weight, bias = tensors(64, 48, outputs=96)
    first = gradients(products.OneDnnLinear.apply, x, weight, bias)
    # At another address, as after a restart.
    moved = torch.empty(64 * 48 + 1)[1:].view(64, 48).copy_(x)
    again = gradients(products.OneDnnLinear.apply, moved, weight, bias)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine where oneDNN is faster; the sizes of the products it is given."""
    sizes: list[int] = []

    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        sizes.append(x.numel() * len(weight))
        return F.linear(x, weight, bias)

    monkeypatch.setattr(products, "has_slow_mkl", lambda: True)
    monkeypatch.setattr(products, "_product", product)
    return sizes


def test_it_is_taken_for_large_float32_products_in_training_alone(taken: list[int]) -> None:
    layer = layers.LinearLayer(64, 64)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    large = torch.randn(products.SMALLEST_PRODUCT // 64**2, 64)

    def count(run: Callable[[], Any]) -> int:
        taken.clear()
        run()
        return len(taken)

    assert count(lambda: layer.train()(large)) == 1
    assert count(lambda: layer.train()(large[:-1])) == 0
    assert count(lambda: layer.eval()(large)) == 0
    layer.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert count(lambda: layer(large)) == 0
    assert count(lambda: layer.double()(large.double())) == 0


def test_the_head_takes_it_too(taken: list[int]) -> None:
    head = heads.TokenHead(vocab=256, tied=True).build(64, 64)
    x, table = torch.randn(2, products.SMALLEST_PRODUCT // (256 * 64 * 2), 64), torch.randn(256, 64)
    head.train()(x, None, table)
    assert len(taken) == 1
    head.eval()(x, None, table)
    assert len(taken) == 1


def test_elsewhere_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "has_slow_mkl", lambda: False)
    x, weight, bias = tensors(512, 64, outputs=64)
    assert torch.equal(products.training_linear(x, weight, bias), F.linear(x, weight, bias))
