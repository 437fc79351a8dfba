"""Attention in training on a CPU: dropout, and short texts in bfloat16, beside torch's own call."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tolerance import assert_close
from torch import Tensor

from clearhead import nn as cn
from clearhead.nn.kernels import softmax
from clearhead.nn.kernels import training as in_training
from clearhead.nn.kernels.training import training_attention

ROWS, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 5, 6, 8
key = torch.Generator().manual_seed(0)
ALLOWED = torch.rand(ROWS, 1, QUERIES, KEYS, generator=key) < 0.5
ALLOWED[:, :, 0] = True
ALLOWED[1, :, 2] = False  # a query that may attend to nothing
BIAS = torch.randn(1, HEADS, QUERIES, KEYS, generator=key)
MASKS: dict[str, Tensor | None] = {
    "none": None,
    "flags": ALLOWED,
    "bias": BIAS,
    "bias and blocked": BIAS.masked_fill(~ALLOWED, float("-inf")),
}


def given(dtype: torch.dtype, groups: int = HEADS, keys: int = KEYS, queries: int = QUERIES) -> list[Tensor]:
    key = torch.Generator().manual_seed(1)
    sizes = [(HEADS, queries), (groups, keys), (groups, keys)]
    return [torch.randn(ROWS, *size, WIDTH, generator=key).to(dtype).requires_grad_() for size in sizes]


def theirs(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, *, is_causal: bool = False
) -> Tensor:
    has_groups = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, mask, scale=scale, is_causal=is_causal, enable_gqa=has_groups
    )


def results(attend: Callable[[], Tensor], parts: list[Tensor]) -> list[Tensor]:
    mixed = attend()
    ramp = torch.linspace(-1, 1, mixed.numel(), dtype=mixed.dtype).view_as(mixed)
    return [mixed.detach(), *torch.autograd.grad((mixed * ramp).sum(), parts)]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A dropout that drops nothing: what is left is torch's attention. The shares it was asked for."""
    shares: list[float] = []
    monkeypatch.setattr(in_training, "apply_dropout", lambda x, p: shares.append(p) or x)
    return shares


@pytest.mark.parametrize("groups", [HEADS, 2])
@pytest.mark.parametrize("name", MASKS)
def test_the_formula_with_dropout_is_torchs_attention(name: str, groups: int, kept: list[float]) -> None:
    parts, mask = given(torch.float64, groups), MASKS[name]
    mask = mask if mask is None or mask.dtype == torch.bool else mask.double()
    ours = results(lambda: training_attention(*parts, mask, scale=0.3, dropout_p=0.1), parts)
    assert kept == [0.1]
    for one, two in zip(ours, results(lambda: theirs(*parts, mask, 0.3), parts), strict=True):
        assert one.isfinite().all()
        assert_close(one, two)


@pytest.mark.usefixtures("kept")
def test_the_formula_with_dropout_is_causal() -> None:
    parts = given(torch.float64, queries=KEYS)
    ours = results(lambda: training_attention(*parts, None, scale=0.3, is_causal=True, dropout_p=0.1), parts)
    for one, two in zip(ours, results(lambda: theirs(*parts, None, 0.3, is_causal=True), parts), strict=True):
        assert_close(one, two)


@pytest.mark.usefixtures("kept")
def test_scores_with_dropout_are_float32_under_autocast() -> None:
    """Two scores of 64 and 64.25 are one number in bfloat16, and their weights would be the same."""
    q = torch.tensor([[[[8.0, 0.5]]]])
    k = torch.tensor([[[[8.0, 0.0], [8.0, 0.5]]]])
    v = torch.tensor([[[[0.0, 0.0], [1.0, 1.0]]]])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = training_attention(q, k, v.bfloat16(), None, scale=1.0, dropout_p=0.1)
    assert mixed.dtype == torch.bfloat16
    assert abs(float(mixed[0, 0, 0, 0]) - float(torch.tensor(0.25).sigmoid())) < 2e-3


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_with_dropout(
    dtype: torch.dtype, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU that is slow in it, products of half precision would take ten times as long."""
    monkeypatch.setattr(in_training, "has_fast_bfloat16", lambda: is_fast)
    parts = given(dtype)
    exact = [part.detach().float().requires_grad_() for part in parts]
    wanted = results(lambda: theirs(*exact, ALLOWED, 0.3), exact)
    ours = results(lambda: training_attention(*parts, ALLOWED, scale=0.3, dropout_p=0.1), parts)
    for one, two in zip(ours, wanted, strict=True):
        assert one.dtype == dtype
        assert_close(one, two.to(dtype), 1.6e-2)


def test_dropout_of_a_learned_bias_has_a_gradient() -> None:
    parts, bias = given(torch.float32), BIAS.clone().requires_grad_()
    training_attention(*parts, bias, scale=0.3, dropout_p=0.5).square().sum().backward()
    assert bias.grad is not None and bias.grad.isfinite().all() and bool((bias.grad != 0).any())


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("under_autocast", [True, False])
def test_short_texts_in_bfloat16_are_computed_in_float32(name: str, under_autocast: bool) -> None:
    parts, mask = given(torch.bfloat16), MASKS[name]
    exact = [part.detach().float().requires_grad_() for part in parts]
    wanted = results(lambda: theirs(*exact, mask, 0.3), exact)
    with torch.autocast("cpu", torch.bfloat16, enabled=under_autocast):
        ours = results(lambda: training_attention(*parts, mask, scale=0.3), parts)
    for one, two in zip(ours, wanted, strict=True):
        assert one.dtype == torch.bfloat16
        assert_close(one, two.bfloat16())


def test_what_is_long_or_float32_is_torchs_call() -> None:
    long = given(torch.bfloat16, keys=in_training.SHORT + 1, queries=9)
    for parts in (long, given(torch.float32)):
        assert torch.equal(training_attention(*parts, None, scale=0.3), theirs(*parts, None, 0.3))


def test_it_is_for_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        softmax, "training_attention", lambda *parts, **named: calls.append("ours") or parts[0]
    )
    kernel = cn.Softmax(dropout=0.1).build(HEADS, WIDTH)
    slots = torch.arange(KEYS)[None]
    view = cn.View(cn.Everyone(), ROWS, slots, slots)
    call = cn.AttentionCall(*given(torch.bfloat16, queries=KEYS), view, scale=0.3)
    kernel.eval()(call)
    assert calls == []
    kernel.train()(call)
    assert calls == ["ours"]
