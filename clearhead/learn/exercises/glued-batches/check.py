"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch


def different_batches_are_refused(user):
    try:
        weights = user.cross_weights(torch.randn(1, 3, 8), torch.randn(2, 4, 8), 2)
    except ValueError:
        return
    raise AssertionError(
        (
            f"no error; weights of shape {tuple(weights.shape)}: {weights.shape[-1]} keys of 4",
            f"没有报错；权重的形状是 {tuple(weights.shape)}，有 {weights.shape[-1]} 个键，应为 4 个",
        )
    )


def equal_batches_work(user):
    weights = user.cross_weights(torch.randn(2, 3, 8), torch.randn(2, 4, 8), 2)
    assert weights.shape == (2, 2, 3, 4), (
        f"got the shape {tuple(weights.shape)}",
        f"得到的形状是 {tuple(weights.shape)}",
    )
    assert torch.allclose(weights.sum(-1), torch.ones(2, 2, 3)), ("rows must sum to one", "每行之和应为 1")
