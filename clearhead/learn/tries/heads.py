"""Experiments without training: why scores are scaled, how heads are split, what n_embd is."""

from __future__ import annotations

import torch

from ...primer.torch import ModelArgs, MultiHeadAttention
from .small import ResultTable, Words, random

KEYS, SAMPLES = 10, 2000


def scale(seed: int) -> ResultTable:
    """Dot products grow with the width of a head; the effect on softmax and its gradient."""
    rows = []
    for width in (4, 16, 64, 256, 1024):
        q, k = random(seed, SAMPLES, 1, width), random(seed + 1, SAMPLES, KEYS, width)
        scores = (q @ k.mT)[:, 0]
        largest, passed = zip(*(_softmax(s) for s in (scores, scores / width**0.5)), strict=True)
        rows.append((str(width), float(scores.var()), *largest, *passed))
    columns = (
        Words("head dimension", "头的维度"),
        Words("variance of q·k", "q·k 的方差"),
        Words("largest weight", "最大权重"),
        Words("scaled", "缩放后"),
        Words("gradient of softmax", "softmax 梯度"),
        Words("scaled", "缩放后"),
    )
    return ResultTable(columns, tuple(rows), bar=4)


def _softmax(scores: torch.Tensor) -> tuple[float, float]:
    """The largest weight, and how much of a change in the scores reaches the weights, on average."""
    weights = scores.softmax(-1)
    slope = (weights * (1 - weights)).sum(-1)  # the trace of the softmax's Jacobian
    return float(weights.amax(-1).mean()), float(slope.mean())


def view_transpose(seed: int) -> ResultTable:
    """Numbers named token.column, split into heads in two ways."""
    tokens, heads, width = 4, 2, 3
    names = [[f"{t}.{c}" for c in range(heads * width)] for t in range(tokens)]
    x = torch.arange(tokens * heads * width).view(1, tokens, heads * width)
    right = x.view(1, tokens, heads, width).transpose(1, 2)
    wrong = x.view(1, heads, tokens, width)
    flat = [name for row in names for name in row]
    rows = []
    for words, split in (
        (Words("view, then transpose", "先 view 再 transpose"), right),
        (Words("view alone", "只用 view"), wrong),
    ):
        held = " ".join(flat[i] for i in split[0, 0, 1].tolist())
        home = [
            int(i) // (heads * width) == t for h in split[0] for t, row in enumerate(h.tolist()) for i in row
        ]
        rows.append((words, held, sum(home) / len(home)))
    columns = (
        Words("how", "做法"),
        Words("head 0 of token 1", "token 1 的头 0"),
        Words("numbers of the right token", "属于本 token 的比例"),
    )
    return ResultTable(columns, tuple(rows), bar=2)


def n_embd(seed: int) -> ResultTable:
    """A block's attention with inputs of several widths, and whether x + f(x) is possible."""
    rows = []
    for width in (32, 64, 128):
        attention = MultiHeadAttention(ModelArgs(dim=64, n_heads=4, n_embd=width, dropout=0.0), seed=seed)
        x = random(seed, 2, 5, width)
        out = attention(x, x, x)
        assert isinstance(out, torch.Tensor)
        fits = out.shape == x.shape
        count = sum(p.numel() for p in attention.parameters())
        rows.append(
            (f"{width}", str(tuple(x.shape)), str(tuple(out.shape)), "✓" if fits else "✗", float(count))
        )
    columns = (
        Words("n_embd (dim 64)", "n_embd (dim 64)"),
        Words("input shape", "输入形状"),
        Words("output shape", "输出形状"),
        Words("x + f(x)", "x + f(x)"),
        Words("parameters", "参数量"),
    )
    return ResultTable(columns, tuple(rows), bar=4)
