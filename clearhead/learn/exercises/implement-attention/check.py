"""Checks of the learner's file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch
import torch.nn.functional as F


def _random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _near(got, expected):
    difference = float((got - expected).abs().max())
    assert difference < 1e-5, (
        f"largest difference: {difference:.4f}",
        f"最大误差：{difference:.4f}",
    )


def the_worked_example(user):
    # One query of width 64 and three keys whose dot products with it are 12.5, 30.8 and 25.1.
    query, keys = torch.zeros(1, 64), torch.zeros(3, 64)
    query[0, 0], keys[:, 0] = 1.0, torch.tensor([12.5, 30.8, 25.1])
    weights = user.attention(query, keys, torch.eye(3))[1]
    assert weights.shape == (1, 3), (
        f"the weights have the shape {tuple(weights.shape)}, expected (1, 3)",
        f"权重的形状是 {tuple(weights.shape)}，应为 (1, 3)",
    )
    rounded = [round(w, 4) for w in weights[0].tolist()]
    assert rounded == [0.0638, 0.6282, 0.3081], (f"weights: {rounded}", f"权重：{rounded}")


def equals_torch(user):
    q, k, v = _random(3, 2, 4, 5, 8).unbind()  # batch 2, heads 4, tokens 5, width 8
    _near(user.attention(q, k, v)[0], F.scaled_dot_product_attention(q, k, v))


def other_lengths_and_widths(user):
    q, k, v = _random(2, 5, 8), _random(2, 7, 8, seed=1), _random(2, 7, 3, seed=2)
    output, weights = user.attention(q, k, v)
    shapes = tuple(output.shape), tuple(weights.shape)
    assert shapes == ((2, 5, 3), (2, 5, 7)), (
        f"output and weights have the shapes {shapes}",
        f"输出和权重的形状是 {shapes}",
    )
    _near(weights.sum(-1), torch.ones(2, 5))


def the_mask_blocks(user):
    q, k, v = _random(3, 2, 5, 8).unbind()
    mask = torch.ones(5, 5).tril().bool()
    output, weights = user.attention(q, k, v, mask)
    assert bool((weights[:, ~mask] == 0).all()), (
        "a blocked key must have the weight 0",
        "被挡住的键，权重必须是 0",
    )
    _near(output, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


def gradients_flow(user):
    q, k, v = (x.requires_grad_() for x in _random(3, 2, 5, 8).unbind())
    user.attention(q, k, v)[0].square().sum().backward()
    for name, x in (("q", q), ("k", k), ("v", v)):
        assert x.grad is not None and bool(x.grad.abs().sum() > 0), (
            f"no gradient reaches {name}",
            f"梯度传不到 {name}",
        )
