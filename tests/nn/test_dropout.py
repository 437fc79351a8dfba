"""Dropout: the share and the scale it promises, independent numbers, a function of the generator's state."""

import math

import pytest
import torch

from clearhead.nn.layers import Dropout, apply_dropout

COUNT = 1_000_000


def dropped(p: float, count: int = COUNT, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return apply_dropout(torch.ones(count, dtype=dtype), p)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_a_share_is_dropped_and_the_rest_scaled_up(p: float) -> None:
    x = dropped(p)
    share = float((x == 0).float().mean())
    # Five standard deviations of as many coin throws, and half a step of the rounded p.
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / COUNT) + 2**-17
    assert torch.unique(x[x != 0]).tolist() == [pytest.approx(1 / (1 - p), rel=2**-17 / (1 - p) + 1e-6)]


def test_neighbours_that_share_a_draw_are_independent() -> None:
    """Four numbers have the 64 bits of one draw; one and the next, or the next but two, tell nothing."""
    x = (dropped(0.5) == 0).float() - 0.5
    for distance in (1, 2, 3, 4, 5):
        correlation = 4 * float((x[:-distance] * x[distance:]).mean())
        assert abs(correlation) < 5 / math.sqrt(COUNT), distance
    for lane in range(4):
        assert abs(2 * float(x[lane::4].mean())) < 5 / math.sqrt(COUNT / 4), lane


def test_the_same_seed_drops_the_same_numbers_and_another_others() -> None:
    assert torch.equal(dropped(0.3), dropped(0.3))
    assert not torch.equal(dropped(0.3), dropped(0.3, seed=1))


def test_every_size_and_dtype() -> None:
    for count in (0, 1, 3, 5, 4099):
        assert dropped(0.5, count).shape == (count,)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        x = dropped(0.5, dtype=dtype)
        assert x.dtype == dtype and set(torch.unique(x).tolist()) == {0.0, 2.0}


def test_nothing_and_everything() -> None:
    x = torch.randn(5, 7)
    assert torch.equal(apply_dropout(x, 0.0), x)
    for p in (1.0, 1 - 1e-9):
        assert torch.equal(apply_dropout(x, p), torch.zeros(5, 7))


def test_the_gradient_is_dropped_with_the_number() -> None:
    x = torch.randn(1000, requires_grad=True)
    y = apply_dropout(x, 0.4)
    y.sum().backward()
    assert torch.equal(y.detach(), x.detach() * x.grad)
    assert 0 < int((x.grad == 0).sum()) < 1000


def test_a_module_acts_in_training_only() -> None:
    x = torch.randn(100)
    assert Dropout(0.5).eval()(x) is x
    assert not torch.equal(Dropout(0.5).train()(x), x)
