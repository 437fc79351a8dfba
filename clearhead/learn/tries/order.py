"""Experiments about order: a model without positions, and one without a causal mask."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F

from ...nn import Labels, NoPositions, Sinusoidal, Tower, Xavier, generator
from .small import Game, ResultTable, Rows, Words, built, digits, small, train


def no_positions(seed: int) -> ResultTable:
    """Which came first, A or B? A small encoder learns it with and without positions."""
    rows = []
    for words, positions in (
        (Words("with positions", "有位置编码"), Sinusoidal()),
        (Words("without", "没有"), NoPositions()),
    ):
        spec = small(2, causal=False).edit(Tower, positions=positions)
        model = built(replace(spec, head=Labels(count=2, pool="mean"), init=Xavier()), seed)
        losses = train(model, _which_first(seed), 120)
        test = _which_first(seed, rows=500).deal(0)
        with torch.no_grad():
            logits, reversed_logits = model(test.inputs), model(test.inputs.flip(1))
        right = float((logits.argmax(-1) == test.labels).float().mean())
        rows.append((words, losses[-1], float((logits - reversed_logits).abs().max()), 100 * right))
    columns = (
        Words("model", "模型"),
        Words("loss", "损失"),
        Words("change by reversing", "颠倒词序后的变化"),
        Words("accuracy, %", "准确率 %"),
    )
    return ResultTable(columns, tuple(rows), bar=3)


def _which_first(seed: int, rows: int = 32, length: int = 8) -> Game:
    """Digits 2 to 9 with one 0 and one 1 among them; label 1 if the 0 stands before the 1."""

    def deal(step: int) -> Rows:
        ids = digits(seed * 1000 + step, rows, length, below=8) + 2
        shuffled = torch.rand(rows, length, generator=generator(seed, "places", step)).argsort(1)
        row = torch.arange(rows)
        ids[row, shuffled[:, 0]], ids[row, shuffled[:, 1]] = 0, 1
        return Rows(ids, (shuffled[:, 0] < shuffled[:, 1]).long())

    return Game(deal)


def no_mask(seed: int) -> ResultTable:
    """Predict the next of random digits: impossible, unless the model can see the answer."""
    rows = []
    for words, causal in ((Words("with the mask", "有掩码"), True), (Words("without", "没有"), False)):
        model = built(replace(small(2, causal=causal), init=Xavier()), seed)
        losses = train(model, _next_digit(seed), 160, lr=5e-3)
        rows.append((words, losses[-1], _at_inference(model, _next_digit(seed).deal(0)), math.log(10)))
    columns = (
        Words("model", "模型"),
        Words("loss in training", "训练时的损失"),
        Words("loss at inference", "推理时的损失"),
        Words("the best that is possible", "理论最优"),
    )
    return ResultTable(columns, tuple(rows), bar=2)


def _next_digit(seed: int) -> Game:
    def deal(step: int) -> Rows:
        ids = digits(seed * 1000 + step, 32, 9)
        return Rows(ids[:, :-1], ids[:, 1:])

    return Game(deal)


def _at_inference(model: torch.nn.Module, rows: Rows) -> float:
    """The loss at each position when no later token exists yet."""
    with torch.no_grad():
        lengths = range(1, rows.inputs.shape[1] + 1)
        last = torch.stack([model(rows.inputs[:, :length])[:, -1] for length in lengths], dim=1)
    return float(F.cross_entropy(last.flatten(0, 1), rows.labels.flatten()))
