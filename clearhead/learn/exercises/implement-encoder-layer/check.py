"""Checks of the learner's file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch
from torch import nn

WIDTH, HEADS, HIDDEN = 16, 4, 32
X = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))
REAL = torch.tensor([[True, True, True, True, True], [True, True, True, False, False]])


def _pair(user):
    """The learner's layer and torch's own, with the same random weights."""
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=draw))
    mine = user.EncoderLayer(WIDTH, HEADS, HIDDEN)
    names = {"attention": "self_attn", "up": "linear1", "down": "linear2", "norm1": "norm1", "norm2": "norm2"}
    for my_name, their_name in names.items():
        getattr(mine, my_name).load_state_dict(getattr(theirs, their_name).state_dict())
    return mine.train(), theirs.train()  # in eval mode torch takes another path, with the same result


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


def equals_torch(user):
    mine, theirs = _pair(user)
    with torch.no_grad():
        _near(mine(X), theirs(X))


def padding_is_ignored(user):
    mine, theirs = _pair(user)
    noise = X.clone()
    noise[1, 3:] += 100.0
    with torch.no_grad():
        clean, noisy = mine(X, REAL), mine(noise, REAL)
        moved = float((clean - noisy)[REAL].abs().max())
        assert moved < 1e-5, (
            f"the content of the padding changes real tokens by {moved:.3f}",
            f"填充处的内容让真实 token 变化了 {moved:.3f}",
        )
        _near(clean[REAL], theirs(X, src_key_padding_mask=~REAL)[REAL])


def tokens_see_each_other(user):
    mine, _ = _pair(user)
    changed = X.clone()
    changed[:, -1] += 1.0
    with torch.no_grad():
        moved = (mine(changed) - mine(X))[:, 0].abs().amax(-1)
    assert bool((moved > 1e-3).all()), (
        "the first token must change when the last one does",
        "最后一个 token 变了，第一个 token 应当随之变化",
    )


def gradients_reach_every_weight(user):
    mine, _ = _pair(user)
    (mine(X) * X.flip(0)).sum().backward()
    names = [
        name for name, p in mine.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)
    ]
    assert not names, (
        f"no gradient reaches {', '.join(names)}",
        f"梯度传不到 {'、'.join(names)}",
    )
