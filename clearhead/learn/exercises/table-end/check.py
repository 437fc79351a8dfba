"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

from clearhead.primer.torch import positional_encoding


def _right(user, length, width):
    added = user.add_positions(torch.zeros(2, length, width))
    assert torch.allclose(added[1], positional_encoding(length, width), atol=1e-5), (
        "these are not the sinusoidal positions",
        "与正弦位置编码不一致",
    )


def exactly_twenty(user):
    _right(user, 20, 8)


def fewer(user):
    _right(user, 7, 8)


def more(user):
    _right(user, 300, 8)


def an_odd_width(user):
    _right(user, 30, 7)
