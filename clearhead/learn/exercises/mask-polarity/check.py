"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

IDS = torch.tensor([[5, 6, 7, 0, 0], [5, 6, 7, 8, 0]])
Q, K, V = torch.randn(3, 2, 5, 8, generator=torch.Generator().manual_seed(0))


def padding_is_not_seen(user):
    weights = user.attend(Q, K, V, IDS)
    assert bool((weights[0, :, 3:] == 0).all()), (
        f"weights of the first word: {weights[0, 0].tolist()}",
        f"第一个词的注意力权重：{weights[0, 0].tolist()}",
    )
    assert bool((weights[1, :, 4] == 0).all()), (
        f"weights of the first word: {weights[1, 0].tolist()}",
        f"第一个词的注意力权重：{weights[1, 0].tolist()}",
    )


def a_padded_sentence_is_the_sentence_alone(user):
    together = user.attend(Q, K, V, IDS)[:1, :3, :3]
    alone = (Q[:1, :3] @ K[:1, :3].transpose(-2, -1) / 8**0.5).softmax(-1)
    assert torch.allclose(together, alone, atol=1e-6), (
        "the weights change when padding is added",
        "加上填充后，权重变了",
    )
