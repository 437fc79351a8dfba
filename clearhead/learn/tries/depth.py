"""Experiments about depth: pre-norm or post-norm, which norm, and what the residual is for."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ...nn import Block, SingleStack, Tap, Tower, Xavier
from .small import Cell, Game, ResultTable, Rows, Words, built, digits, random, small, train

DEEP, _STEPS = 12, 50


def _previous(seed: int) -> Game:
    """What was the previous digit? Only attention can know; at position 0 it is the digit itself."""

    def deal(step: int) -> Rows:
        ids = digits(seed * 1000 + step, 32, 8)
        labels = ids.roll(1, dims=1)
        labels[:, 0] = ids[:, 0]
        return Rows(ids, labels)

    return Game(deal)


def _spec(depth: int) -> SingleStack:
    return replace(small(depth), init=Xavier())


def pre_norm(seed: int) -> ResultTable:
    """The same deep model with norms after or before its parts; no warm-up."""
    rows = []
    for order, words in (
        ("post", Words("post-norm", "post-norm")),
        ("pre", Words("pre-norm", "pre-norm")),
    ):
        spec = _spec(DEEP).edit(Block, order=order)
        if order == "post":  # its last block ends with a norm already
            spec = spec.edit(Tower, last_norm=None)
        losses = train(built(spec, seed), _previous(seed), _STEPS)
        rows.append((words, losses[0], losses[_STEPS // 2], losses[-1]))
    columns = (
        Words(f"norm, {DEEP} layers", f"{DEEP} 层，归一化"),
        Words("loss at step 1", "第 1 步损失"),
        Words(f"step {_STEPS // 2}", f"第 {_STEPS // 2} 步"),
        Words(f"step {_STEPS}", f"第 {_STEPS} 步"),
    )
    return ResultTable(columns, tuple(rows), bar=3)


def layernorm_batchnorm(seed: int) -> ResultTable:
    """The same sentence in other batches: how much do its normalised vectors change?"""
    sentence = random(seed, 1, 5, 16)
    mates = random(seed + 1, 3, 5, 16)
    layer, batch = nn.LayerNorm(16), nn.BatchNorm1d(16)
    among = (
        (Words("three others", "另外三句"), mates),
        (Words("three others, ten times as large", "另外三句，数值大十倍"), 10 * mates),
        (Words("three rows of padding (zeros)", "三行填充（全零）"), 0 * mates),
    )
    rows: list[tuple[Cell, ...]] = []
    with torch.no_grad():
        alone = layer(sentence), _batch_norm(batch, sentence)
        for words, others in among:
            together = torch.cat([sentence, others])
            moved = (layer(together)[:1] - alone[0], _batch_norm(batch, together)[:1] - alone[1])
            rows.append((words, *(float(each.abs().max()) for each in moved)))
    columns = (
        Words("in one batch with", "同一批里还有"),
        Words("LayerNorm moves by", "LayerNorm 的变化"),
        Words("BatchNorm moves by", "BatchNorm 的变化"),
    )
    return ResultTable(columns, tuple(rows), bar=2)


def _batch_norm(norm: nn.BatchNorm1d, x_BTD: Tensor) -> Tensor:
    normed: Tensor = norm(x_BTD.transpose(1, 2)).transpose(1, 2)
    return normed


def no_residual(seed: int) -> ResultTable:
    """The same models with and without residual connections, which a tap removes."""
    rows = []
    for depth in (1, 3, 6):
        with_it, without = (
            train(built(_spec(depth), seed), game, _STEPS)[-1]
            for game in (_previous(seed), replace(_previous(seed), tap=_cut))
        )
        rows.append((str(depth), with_it, without))
    columns = (
        Words("layers", "层数"),
        Words("loss with residuals", "有残差的损失"),
        Words("loss without", "无残差的损失"),
    )
    return ResultTable(columns, tuple(rows), bar=2)


def _cut() -> Tap:
    """Each part returns `f(x) - x`, so that the block's own `x + ...` gives just f(x)."""
    stream: list[Tensor] = []

    def visit(address: str, x: Tensor) -> Tensor:
        if address.endswith(".in"):
            stream[:] = [x]
            return x
        if not address.endswith((".attn.out", ".ff.out")):
            return x
        before, stream[:] = stream[0], [x]
        return x - before

    return Tap("tower.blocks.*", visit)
