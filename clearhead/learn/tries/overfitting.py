"""An experiment about over-fitting: few rows, many steps, with and without dropout."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from ...nn import MLP, Block, Tokens, TransformerModel, Xavier, generator
from ...train import OptimizerStep, Training, TrainingState
from .small import Game, ResultTable, Rows, Words, built, small

SEEN, HELD_OUT, _LENGTH = 32, 200, 16
_STEPS, MEASURE_EVERY, _WIDTH = 200, 10, 64
RULE = 0.7  # how often a digit follows from the one before it


def dropout(seed: int) -> ResultTable:
    """Digits of which most follow a rule. A model that learns the exceptions by heart has over-fitted."""
    seen, held_out = _digits(2 * seed, SEEN), _digits(2 * seed + 1, HELD_OUT)
    rows = []
    for rate in (0.0, 0.1, 0.3):
        curve = _curve(seed, rate, seen, held_out)
        best = min(range(len(curve)), key=lambda i: curve[i][1])
        rows.append((f"{rate:g}", *curve[-1], curve[best][1], str((best + 1) * MEASURE_EVERY)))
    columns = (
        Words("dropout", "dropout"),
        Words("training loss", "训练损失"),
        Words("held-out loss", "验证损失"),
        Words("lowest held-out loss", "最低验证损失"),
        Words("at step", "出现在第几步"),
    )
    return ResultTable(columns, tuple(rows), bar=2)


def _digits(seed: int, count: int) -> Rows:
    """Each digit is the one before plus 3 (mod 10) seven times out of ten, else any digit."""
    drawn = generator(seed, "rule", count)
    steps = [torch.randint(10, (count,), generator=drawn)]
    for _ in range(_LENGTH):
        follows = torch.rand(count, generator=drawn) < RULE
        anything = torch.randint(10, (count,), generator=drawn)
        steps.append(torch.where(follows, (steps[-1] + 3) % 10, anything))
    ids = torch.stack(steps, dim=1)
    return Rows(ids[:, :-1], ids[:, 1:])


def _curve(seed: int, rate: float, seen: Rows, held_out: Rows) -> list[tuple[float, float]]:
    """Training and held-out loss, both without dropout, every few steps."""
    spec = replace(small(2, width=_WIDTH), init=Xavier())
    model = built(spec.edit(Block, dropout=rate).edit(MLP, dropout=rate).edit(Tokens, dropout=rate), seed)
    training = Training(steps=_STEPS, lr=3e-3, seed=seed)
    update, state, curve = (
        OptimizerStep(model, Game(lambda step: seen), training, _WIDTH),
        TrainingState(),
        [],
    )
    for step in range(1, _STEPS + 1):
        model.train()
        update.run(step, state, lambda: False)
        if step % MEASURE_EVERY == 0:
            curve.append((_loss(model, seen), _loss(model, held_out)))
    return curve


def _loss(model: TransformerModel, rows: Rows) -> float:
    with torch.no_grad():
        logits = model.eval()(rows.inputs)
    return float(F.cross_entropy(logits.flatten(0, 1), rows.labels.flatten()))
