"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

TARGET = torch.tensor([[1, 7, 8, 9, 2], [1, 4, 5, 6, 2]])


def each_place_is_asked_for_the_next_word(user):
    inputs, labels = user.teacher_forcing(TARGET)
    assert inputs.shape == labels.shape, (
        f"{tuple(inputs.shape)} and {tuple(labels.shape)}",
        f"形状不同：{tuple(inputs.shape)} 与 {tuple(labels.shape)}",
    )
    assert bool((inputs != labels).all()), (
        "the label of a position is its own input",
        "有的位置，标签就是它的输入",
    )
    assert torch.equal(inputs[:, 1:], labels[:, :-1]), (
        "the label of a position must be the input of the next",
        "每个位置的标签应是下一个位置的输入",
    )


def nothing_is_lost(user):
    inputs, labels = user.teacher_forcing(TARGET)
    assert inputs[:, 0].tolist() == [1, 1], ("the first input is the start token", "第一个输入应是起始 token")
    assert labels[:, -1].tolist() == [2, 2], ("the last label is the end token", "最后一个标签应是结束 token")
