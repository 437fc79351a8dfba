"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import numpy as np

from clearhead.primer.numpy import scaled_dot_product_attention


def _same(user, *shape):
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=shape) for _ in range(3))
    difference = np.abs(user.attend(q, k, v) - scaled_dot_product_attention(q, k, v)[0]).max()
    assert difference < 1e-9, (
        f"largest difference for {shape}: {difference:.3f}",
        f"形状 {shape} 的最大误差：{difference:.3f}",
    )


def as_many_tokens_as_columns(user):
    _same(user, 4, 4)


def more_tokens_than_columns(user):
    _same(user, 6, 4)


def a_batch_with_heads(user):
    _same(user, 2, 3, 5, 4)
