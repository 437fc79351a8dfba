"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch


def a_head_holds_a_slice_of_every_token(user):
    x = torch.arange(24).view(1, 4, 6)
    wanted = torch.stack([x[..., :3], x[..., 3:]], 1)
    heads = user.split_heads(x, 2)
    assert heads.shape == (1, 2, 4, 3), (
        f"got the shape {tuple(heads.shape)}",
        f"得到的形状是 {tuple(heads.shape)}",
    )
    assert torch.equal(heads, wanted), (
        f"head 0, token 1 is {heads[0, 0, 1].tolist()}, expected [6, 7, 8]",
        f"token 1 的头 0 是 {heads[0, 0, 1].tolist()}，应为 [6, 7, 8]",
    )


def tokens_do_not_mix(user):
    x = torch.zeros(1, 4, 6)
    x[0, 1] = 1
    touched = user.split_heads(x, 2).sum((1, 3))[0] > 0
    assert touched.tolist() == [False, True, False, False], (
        f"token 1 appears at {touched.tolist()}",
        f"token 1 出现在 {touched.tolist()}",
    )
