"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

KEEP = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])


def _call(user):
    q, k, v = torch.randn(3, 1, 3, 4, generator=torch.Generator().manual_seed(0))
    q.requires_grad_()
    output, weights = user.attend(q, k, v, KEEP)
    return q, output, weights


def the_blocked_row_is_zero(user):
    _, output, weights = _call(user)
    assert bool((weights[0, 1] == 0).all()), (
        f"weights of the blocked row: {weights[0, 1].tolist()}",
        f"被屏蔽的行，权重为 {weights[0, 1].tolist()}",
    )
    assert bool((output[0, 1] == 0).all()), (
        f"output of the blocked row: {output[0, 1].tolist()}",
        f"被屏蔽的行，输出为 {output[0, 1].tolist()}",
    )


def the_other_rows_sum_to_one(user):
    sums = _call(user)[2].sum(-1)[0, [0, 2]]
    assert torch.allclose(sums, torch.ones(2)), (f"row sums: {sums.tolist()}", f"各行之和：{sums.tolist()}")


def gradients_are_finite(user):
    q, output, _ = _call(user)
    output.sum().backward()
    assert bool(q.grad.isfinite().all()), ("a gradient is not finite", "有梯度不是有限值")
    assert bool((q.grad[0, 1] == 0).all()), ("the blocked row must have no gradient", "被屏蔽的行不应有梯度")
