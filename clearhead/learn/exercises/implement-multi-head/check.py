"""Checks of the learner's file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch
from torch import nn

WIDTH, HEADS = 16, 4


def _random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _pair(user):
    """The learner's module and torch's own, with the same random weights."""
    mine, theirs = (
        user.MultiHeadAttention(WIDTH, HEADS),
        nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
    )
    with torch.no_grad():
        for seed, linear in enumerate((mine.q, mine.k, mine.v, mine.out)):
            linear.weight.copy_(0.3 * _random(WIDTH, WIDTH, seed=seed))
            linear.bias.copy_(_random(WIDTH, seed=10 + seed))
        theirs.in_proj_weight.copy_(torch.cat([mine.q.weight, mine.k.weight, mine.v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([mine.q.bias, mine.k.bias, mine.v.bias]))
        theirs.out_proj.load_state_dict(mine.out.state_dict())
    return mine.eval(), theirs.eval()


def _near(got, expected):
    assert got.shape == expected.shape, (
        f"got the shape {tuple(got.shape)}, expected {tuple(expected.shape)}",
        f"得到的形状是 {tuple(got.shape)}，应为 {tuple(expected.shape)}",
    )
    difference = float((got - expected).abs().max())
    assert difference < 1e-5, (
        f"largest difference: {difference:.4f}",
        f"最大误差：{difference:.4f}",
    )


def heads_hold_their_columns(user):
    mine, x = user.MultiHeadAttention(WIDTH, HEADS), _random(2, 5, WIDTH)
    split = mine.split(x)
    assert split.shape == (2, 4, 5, 4), (
        f"split gives the shape {tuple(split.shape)}, expected (2, 4, 5, 4)",
        f"split 得到的形状是 {tuple(split.shape)}，应为 (2, 4, 5, 4)",
    )
    assert torch.equal(split[:, 1], x[:, :, 4:8]), (
        "head 1 must hold columns 4 to 7 of every token",
        "头 1 应当装着每个 token 的第 4 到 7 列",
    )


def self_attention_equals_torch(user):
    mine, theirs = _pair(user)
    x = _random(2, 5, WIDTH)
    with torch.no_grad():
        _near(mine(x, x), theirs(x, x, x, need_weights=False)[0])


def cross_attention_equals_torch(user):
    mine, theirs = _pair(user)
    x, memory = _random(2, 5, WIDTH), _random(2, 7, WIDTH, seed=1)
    with torch.no_grad():
        _near(mine(x, memory), theirs(x, memory, memory, need_weights=False)[0])


def the_mask_equals_torch(user):
    mine, theirs = _pair(user)
    x, may = _random(2, 5, WIDTH), torch.ones(5, 5).tril().bool()
    with torch.no_grad():
        # In torch's module True means "blocked".
        _near(mine(x, x, may), theirs(x, x, x, attn_mask=~may, need_weights=False)[0])
