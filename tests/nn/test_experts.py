"""Routers by hand: what a capacity takes, float32 in half precision, noise in training alone."""

import pytest
import torch
from tolerance import assert_close
from zoo import ids, single

from clearhead import nn as cn
from clearhead.errors import UnsupportedError
from clearhead.nn.context import context_of

WIDTH = 24


def mixture(**router: object) -> cn.MixtureOfExperts:
    spec = cn.Experts(count=3, expert=cn.MLP(hidden=8), router=cn.Router(**{"chosen": 1} | router))
    model = single(block=cn.Block(attention=cn.Attention(heads=4), feedforward=spec), depth=1).build()
    return model.tower.blocks[0].ff


def states(tokens: int, rows: int = 1) -> torch.Tensor:
    return torch.randn(rows, tokens, WIDTH, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("chosen", [1, 2])
@pytest.mark.parametrize("capacity", [1, 2, 5, 40])
@torch.no_grad()
def test_an_expert_takes_the_first_tokens_of_each_row(capacity: int, chosen: int) -> None:
    """Counted by hand; a token above the capacity contributes nothing."""
    layer, x = mixture(chosen=chosen, capacity=capacity), states(12, rows=3)
    limited = layer.router(x, context_of(x))
    free = mixture(chosen=chosen).router(x, context_of(x))  # the same weights: seeds follow names
    for row in range(3):
        taken = [0, 0, 0]
        for token in range(12):
            for expert in range(3):
                weight = float(free[row, token, expert])
                taken[expert] += weight > 0
                assert float(limited[row, token, expert]) == (weight if taken[expert] <= capacity else 0.0)
    left_out = ~limited.any(-1)
    assert left_out.any() == (capacity < 12)
    assert not layer(x, context_of(x))[left_out].any()


@torch.no_grad()
def test_padding_inside_a_text_takes_no_room() -> None:
    """At either end it takes none either: that is the law of padding, over every choice of the zoo."""
    layer, x = mixture(capacity=2), states(9)
    real = torch.tensor([[1, 0, 1, 1, 0, 0, 1, 1, 1]], dtype=torch.bool)
    alone = x[real][None]
    routed = layer.router(x, context_of(x, cn.Padding(real)))
    assert_close(routed[real], layer.router(alone, context_of(alone))[0])
    assert not routed[~real].any()


@torch.no_grad()
def test_a_wide_router_computes_in_float32() -> None:
    """In half precision, and under autocast, which would round the input of its product."""
    wide, narrow = mixture(wide=True, bias=True), mixture(bias=True)
    x = states(6)
    want = wide.router._logits(x)
    assert torch.equal(want, narrow.router._logits(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(wide.router._logits(x), want)
        assert not torch.equal(narrow.router._logits(x), want)
    half, x = wide.bfloat16(), x.bfloat16()
    weight, bias = half.router.linear.weight.float(), half.router.linear.bias.float()
    assert torch.equal(half.router._logits(x), torch.nn.functional.linear(x.float(), weight, bias))


@torch.no_grad()
def test_noise_is_for_training_and_for_the_choice_alone() -> None:
    layer, x = mixture(jitter=0.3), states(50)
    plain = layer.eval().router._logits(x)
    assert torch.equal(plain, mixture().router._logits(x))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        noisy = layer.train().router._logits(x)
        torch.manual_seed(0)
        assert torch.equal(noisy, layer.router._logits(x))  # by seed, as dropout
        torch.manual_seed(0)
        factors = torch.empty_like(x).uniform_(0.7, 1.3)
    assert_close(noisy, torch.nn.functional.linear(x * factors, layer.router.linear.weight))
    assert not torch.equal(noisy, plain)


@torch.no_grad()
def test_a_segment_memory_cannot_count_a_capacity() -> None:
    experts = cn.Experts(count=3, expert=cn.MLP(hidden=8), router=cn.Router(capacity=2))
    block = cn.Block(attention=cn.Attention(heads=4), feedforward=experts)
    model = single(causal=True, block=block, positions=cn.Alibi()).build()
    with pytest.raises(UnsupportedError, match=r"segment memory .* Router\(capacity=None\)"):
        model(ids(1, 4), cache=model.segment_memory(4))
