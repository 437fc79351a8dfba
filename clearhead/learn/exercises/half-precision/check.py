"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

KEEP = torch.ones(4, 4, dtype=torch.bool).tril()


def _blocks(user, dtype):
    q = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    weights = user.attend(q, q, q, KEEP)
    assert weights.dtype == dtype and bool(weights.isfinite().all()), (
        "weights must be finite, in the same dtype",
        "权重必须是有限值，dtype 不变",
    )
    assert bool((weights.triu(1) == 0).all()), ("blocked keys must have weight 0", "被屏蔽的键，权重必须为 0")


def in_float32(user):
    _blocks(user, torch.float32)


def in_float16(user):
    _blocks(user, torch.float16)


def in_bfloat16(user):
    _blocks(user, torch.bfloat16)
