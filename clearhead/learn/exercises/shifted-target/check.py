"""What must hold of the mended file; the words for each are in exercise.yaml."""

import torch

TARGET = torch.tensor([[1, 7, 8, 9, 2], [1, 4, 5, 6, 2]])


def each_place_is_asked_for_the_next_word(user):
    inputs, labels = user.teacher_forcing(TARGET)
    assert inputs.shape == labels.shape, f"{tuple(inputs.shape)} and {tuple(labels.shape)}"
    assert bool((inputs != labels).all()), "a place is asked for the word it is shown"
    assert torch.equal(inputs[:, 1:], labels[:, :-1]), "the label of a place is the input of the next"


def nothing_is_lost(user):
    inputs, labels = user.teacher_forcing(TARGET)
    assert inputs[:, 0].tolist() == [1, 1], "the first input is the start token"
    assert labels[:, -1].tolist() == [2, 2], "the last label is the end token"
