"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch


def _rates(user, lr, steps, width=512, warmup=40):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    schedule, rates = user.noam(optimizer, width, warmup), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def the_peak_is_right(user):
    peak, wanted = max(_rates(user, 1e-3, 100)), 512**-0.5 * 40**-0.5
    assert abs(peak / wanted - 1) < 1e-6, (
        f"the peak is {peak:.3e}, expected {wanted:.3e}",
        f"峰值为 {peak:.3e}，应为 {wanted:.3e}",
    )


def the_optimizers_lr_does_not_matter(user):
    one, two = _rates(user, 1e-3, 5), _rates(user, 1.0, 5)
    assert all(abs(a / b - 1) < 1e-6 for a, b in zip(one, two, strict=True)), (
        f"{one[0]:.3e} or {two[0]:.3e}",
        f"优化器的 lr 不同，第 1 步的学习率就不同：{one[0]:.3e} 与 {two[0]:.3e}",
    )


def every_step_of_the_warmup_is_higher(user):
    rates = _rates(user, 1e-3, 40)
    assert rates[1] > rates[0], (
        f"steps 1 and 2 have {rates[0]:.3e} and {rates[1]:.3e}",
        f"第 1、2 步的学习率为 {rates[0]:.3e} 和 {rates[1]:.3e}",
    )
    assert abs(rates[1] / rates[0] - 2) < 1e-6, (
        "step 2 has twice the rate of step 1",
        "第 2 步的学习率应是第 1 步的两倍",
    )
