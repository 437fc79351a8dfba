"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

Q, K, V = torch.randn(3, 2, 5, 8, generator=torch.Generator().manual_seed(0))


def rows_sum_to_one_while_training(user):
    torch.manual_seed(0)
    sums = user.attend(Q, K, V, 0.5, True)[1].sum(-1)
    assert torch.allclose(sums, torch.ones(2, 5)), (
        f"row sums: {[round(x, 2) for x in sums[0].tolist()]}",
        f"各行之和：{[round(x, 2) for x in sums[0].tolist()]}",
    )


def dropout_still_works(user):
    torch.manual_seed(0)
    output, weights = user.attend(Q, K, V, 0.5, True)
    assert not torch.allclose(output, weights @ V), (
        "in training the output must come from dropped weights",
        "训练时，输出应由 dropout 之后的权重算出",
    )


def nothing_drops_when_not_training(user):
    output, weights = user.attend(Q, K, V, 0.5, False)
    assert torch.allclose(output, weights @ V, atol=1e-6), (
        "without training the output is weights @ v",
        "不在训练时，输出应等于 weights @ v",
    )
