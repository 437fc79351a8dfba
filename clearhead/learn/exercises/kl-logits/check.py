"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

TARGET = torch.tensor([1, 3])
LOGITS = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))


def never_below_zero(user):
    for scale in (1, 10, 100):
        loss = float(user.smoothed_loss(LOGITS * scale, TARGET))
        assert loss >= -1e-5, (f"the loss is {loss:.3f}", f"损失为 {loss:.3f}")


def a_shift_of_all_logits_changes_nothing(user):
    one, two = user.smoothed_loss(LOGITS, TARGET), user.smoothed_loss(LOGITS + 10, TARGET)
    assert torch.allclose(one, two, atol=1e-4), (
        f"{float(one):.3f} becomes {float(two):.3f}",
        f"损失从 {float(one):.3f} 变成 {float(two):.3f}",
    )


def the_perfect_answer_has_loss_zero(user):
    truth = torch.full((2, 5), 0.1 / 4).scatter_(1, TARGET[:, None], 0.9)
    loss = float(user.smoothed_loss(truth.log(), TARGET))
    assert abs(loss) < 1e-5, (f"the loss is {loss:.3f}", f"损失为 {loss:.3f}")
