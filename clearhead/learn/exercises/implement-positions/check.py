"""Checks of the learner's file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import math

import torch


def the_shape(user):
    shape = tuple(user.positional_encoding(7, 16).shape)
    assert shape == (7, 16), (
        f"got the shape {shape}, expected (7, 16)",
        f"得到的形状是 {shape}，应为 (7, 16)",
    )


def position_zero(user):
    first = user.positional_encoding(3, 8)[0].tolist()
    rounded = [round(x, 3) for x in first]
    assert first == [0, 1, 0, 1, 0, 1, 0, 1], (f"row 0: {rounded}", f"第 0 行：{rounded}")


def the_formula(user):
    table, width = user.positional_encoding(60, 32), 32
    for pos in (1, 7, 59):
        for column in range(width):
            angle = pos / 10000 ** (2 * (column // 2) / width)
            expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            got = float(table[pos, column])
            assert abs(got - expected) < 1e-5, (
                f"PE[{pos}, {column}] is {got:.5f}, expected {expected:.5f}",
                f"PE[{pos}, {column}] 是 {got:.5f}，应为 {expected:.5f}",
            )


def a_shift_is_a_rotation(user):
    # sin and cos of one angle: moving on by 5 turns each pair by the same angle, wherever it starts.
    table = user.positional_encoding(40, 16).double()
    pairs = torch.complex(table[:, 1::2], table[:, 0::2])
    turns = pairs[5:] / pairs[:-5]
    spread = float((turns - turns[0]).abs().max())
    assert spread < 1e-4, (
        f"a step of 5 rotates a pair by angles that differ by up to {spread:.3f}",
        f"移动 5 个位置，同一对列转过的角度相差达 {spread:.3f}",
    )
