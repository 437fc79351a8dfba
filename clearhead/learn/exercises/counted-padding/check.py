"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

LOGITS = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))


def padding_does_not_count(user):
    short = user.loss(LOGITS[:, :3], torch.tensor([[1, 2, 3], [4, 5, 6]]))
    long = user.loss(LOGITS, torch.tensor([[1, 2, 3, 0, 0], [4, 5, 6, 0, 0]]))
    assert torch.allclose(short, long), (
        f"{float(short):.3f} becomes {float(long):.3f}",
        f"损失从 {float(short):.3f} 变成 {float(long):.3f}",
    )


def another_padding_id(user):
    short = user.loss(LOGITS[:, :3], torch.tensor([[0, 2, 3], [4, 5, 0]]), pad=6)
    long = user.loss(LOGITS, torch.tensor([[0, 2, 3, 6, 6], [4, 5, 0, 6, 6]]), pad=6)
    assert torch.allclose(short, long), (
        "the padding id is an argument, not always 0",
        "填充的 id 由参数给出，不一定是 0",
    )
