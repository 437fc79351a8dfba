"""Checks of the learner's file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import math

import torch
import torch.nn.functional as F
from torch import nn

SRC = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])
TGT = torch.tensor([[1, 9, 10, 11], [1, 12, 13, 14]])


def _model(user):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return user.Transformer(20, 30).train()  # there is no dropout; in eval mode torch takes another path


def _moved(a, b):
    return float((a - b).abs().max())


def positions_and_scale(user):
    model = _model(user)
    with torch.no_grad():
        same = model.embed(model.source, torch.tensor([[5, 5]]))[0]
        expected = model.source.weight[5] * math.sqrt(32) + model.waves[:2]
    assert same.shape == (2, 32), (
        f"got the shape {tuple(same.shape)}, expected (2, 32)",
        f"得到的形状是 {tuple(same.shape)}，应为 (2, 32)",
    )
    assert _moved(same, expected) < 1e-5, (
        "expected table(ids) * sqrt(width) + waves of the positions",
        "应为 table(ids) * sqrt(width) 加上各位置的 waves",
    )


def equals_torch(user):
    model = _model(user)
    whole = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True)
    # nn.Transformer adds a norm after each stack, which the paper has not.
    whole.encoder.norm, whole.decoder.norm = nn.Identity(), nn.Identity()
    whole.encoder.layers.load_state_dict(model.encoder.state_dict())
    whole.decoder.layers.load_state_dict(model.decoder.state_dict())
    waves, root = model.waves[:4], math.sqrt(32)
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    with torch.no_grad():
        states = whole(
            model.source(SRC) * root + waves,
            model.target(TGT) * root + waves,
            tgt_mask=future,
            src_key_padding_mask=SRC == 0,
            memory_key_padding_mask=SRC == 0,
        )
        logits, expected = model(SRC, TGT), model.head(states)
    assert logits.shape == (2, 4, 30), (
        f"got the shape {tuple(logits.shape)}, expected (2, 4, 30)",
        f"得到的形状是 {tuple(logits.shape)}，应为 (2, 4, 30)",
    )
    assert _moved(logits, expected) < 1e-4, (
        f"largest difference: {_moved(logits, expected):.3f}",
        f"最大误差：{_moved(logits, expected):.3f}",
    )


def the_future_is_invisible(user):
    model, changed = _model(user), TGT.clone()
    changed[:, 2] = 20
    with torch.no_grad():
        before, after = model(SRC, TGT), model(SRC, changed)
    assert _moved(before[:, :2], after[:, :2]) < 1e-6, (
        "changing token 2 moved the logits before it",
        "改动 token 2，前面的 logits 变了",
    )
    assert _moved(before[:, 2:], after[:, 2:]) > 1e-4, (
        "changing token 2 must move the logits from there on",
        "改动 token 2，从那里往后的 logits 应当变化",
    )


def padding_is_invisible(user):
    model = _model(user)
    with torch.no_grad():
        padded, short = model(SRC[1:], TGT[1:]), model(SRC[1:, :2], TGT[1:])
    assert _moved(padded, short) < 1e-5, (
        f"two tokens of padding moved the logits by {_moved(padded, short):.3f}",
        f"补两个填充，logits 变化了 {_moved(padded, short):.3f}",
    )


def it_learns_to_reverse(user):
    model, draw = _model(user), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(250):
        src = torch.randint(3, 20, (32, 5), generator=draw)
        tgt = torch.cat([torch.ones(32, 1, dtype=torch.long), src.flip(1)], 1)
        loss = F.cross_entropy(model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.0, (
        f"the loss after 250 steps is {loss.item():.2f}; guessing is {math.log(17):.2f}",
        f"250 步之后的损失是 {loss.item():.2f}；随机猜测是 {math.log(17):.2f}",
    )
