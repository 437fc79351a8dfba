"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch
from torch import nn


def _model():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    model(torch.ones(2, 4)).square().sum().backward()
    return model


def as_clipping_measures_it(user):
    model = _model()
    ours, theirs = user.total_norm(model), float(nn.utils.clip_grad_norm_(model.parameters(), 1e9))
    assert abs(ours / theirs - 1) < 1e-5, (
        f"{ours:.4f}, torch gives {theirs:.4f}",
        f"得到 {ours:.4f}，torch 为 {theirs:.4f}",
    )


def frozen_parameters_are_passed_over(user):
    model = _model()
    model.add_module("frozen", nn.Linear(3, 3))
    user.total_norm(model)
