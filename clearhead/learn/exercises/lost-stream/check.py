"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch
from torch import nn


def a_block_that_adds_nothing_is_the_identity(user):
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)) * 3
    out = user.block(x, nn.LayerNorm(8), torch.zeros_like, nn.LayerNorm(8), torch.zeros_like)
    assert torch.equal(out, x), (
        f"the residual stream changed by {float((out - x).detach().abs().max()):.3f}",
        f"残差流改变了 {float((out - x).detach().abs().max()):.3f}",
    )


def the_parts_see_normed_vectors(user):
    seen = []

    def watch(x):
        seen.append(x)
        return 0.5 * x

    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)) * 3
    norm = nn.LayerNorm(8)
    out = user.block(x, norm, watch, norm, watch)
    middle = x + 0.5 * norm(x)
    assert torch.allclose(seen[0], norm(x)) and torch.allclose(seen[1], norm(middle)), (
        "the input of a sublayer must be norm(x)",
        "各子层的输入应是 norm(x)",
    )
    assert torch.allclose(out, middle + 0.5 * norm(middle)), (
        "the output of a sublayer must be added to the residual stream x",
        "子层的输出应加到残差流 x 上",
    )
