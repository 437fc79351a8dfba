"""Experiments about networks: four kinds on the same task by distance, and loss against parameters.

Shape suffixes: B sequences, T tokens, D width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...recipes import load_run, prepare
from ...train import OptimizerStep, TrainingState, deterministic
from .small import Cell, ResultTable, Words, digits

_LENGTH, DIGIT_COUNT, _WIDTH, _STEPS = 32, 8, 32, 250
DISTANCES = (1, 4, 8, 16, 31)  # 31: the first of the 32 tokens


class Network(nn.Module):
    """Digits in, scores for one digit out, read at the last token. The kinds differ only in `mix`."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(DIGIT_COUNT, _WIDTH), nn.Linear(_WIDTH, DIGIT_COUNT)

    def mix(self, x_BTD: Tensor) -> Tensor:
        """All tokens in, one vector for the last token out."""
        raise NotImplementedError

    def forward(self, ids_BT: Tensor) -> Tensor:
        scores: Tensor = self.head(self.mix(self.table(ids_BT)))
        return scores


class TinyRecurrent(Network):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(_WIDTH, _WIDTH, batch_first=True)

    def mix(self, x_BTD: Tensor) -> Tensor:
        states_BTD: Tensor = self.rnn(x_BTD)[0]
        return states_BTD[:, -1]


class TinyFeedForward(Network):
    """Every position has its own weights, so it reads exactly `_LENGTH` tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(_LENGTH * _WIDTH, _WIDTH)

    def mix(self, x_BTD: Tensor) -> Tensor:
        return F.relu(self.hidden(x_BTD.flatten(1)))


class TinyConvolution(Network):
    """Two layers that see five tokens each: together the last nine."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(_WIDTH, _WIDTH, 5) for _ in range(2))

    def mix(self, x_BTD: Tensor) -> Tensor:
        x_BDT = x_BTD.mT
        for layer in self.layers:
            x_BDT = F.relu(layer(F.pad(x_BDT, (4, 0))))  # padded on the left: no token sees the next one
        return x_BDT[:, :, -1]


class TinyAttention(Network):
    """One head; the position is added, otherwise "16 back" would be undefined."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(_LENGTH, _WIDTH)
        self.q, self.k, self.v = (nn.Linear(_WIDTH, _WIDTH) for _ in range(3))

    def mix(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.positions.weight
        last = self.q(x_BTD[:, -1:])
        return F.scaled_dot_product_attention(last, self.k(x_BTD), self.v(x_BTD))[:, 0]


NETWORKS: tuple[tuple[type[Network], Words], ...] = (
    (TinyRecurrent, Words("plain RNN", "循环神经网络 (RNN)")),
    (TinyFeedForward, Words("feed-forward", "前馈神经网络 (FNN)")),
    (TinyConvolution, Words("convolution, 2 layers of 5", "卷积神经网络 (CNN)，2 层，卷积核 5")),
    (TinyAttention, Words("one attention layer", "一层注意力")),
)


# One thread: products this small gain nothing from two, and a second one waits on a busy machine.
@deterministic(threads=1)
def rnn_or_attention(seed: int) -> ResultTable:
    """Which digit was `distance` tokens before the last one? Each kind is trained again for each distance."""
    rows: list[tuple[Cell, ...]] = []
    for kind, words in NETWORKS:
        size = sum(p.numel() for p in kind().parameters())
        rows.append((words, *(_recall(kind, distance, seed) for distance in DISTANCES), float(size)))
    first, *others = DISTANCES
    columns = (
        Words("right, %, by distance", "正确率 %，按距离"),
        Words(f"{first} back", f"前 {first} 个"),
        *(Words(str(distance), str(distance)) for distance in others),
        Words("parameters", "参数量"),
    )
    return ResultTable(columns, tuple(rows), bar=len(DISTANCES))


def _recall(kind: type[Network], distance: int, seed: int, steps: int = _STEPS) -> float:
    """Train, then return the accuracy on 1,000 new sequences, in percent. Chance is 12.5."""
    with torch.random.fork_rng(devices=[]):  # torch's own layers start from the global generator
        torch.manual_seed(seed)
        model = kind()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        ids = digits(seed * 100_000 + step, 64, _LENGTH, below=DIGIT_COUNT)
        loss = F.cross_entropy(model(ids), ids[:, -1 - distance])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    test = digits(seed * 100_000, 1000, _LENGTH, below=DIGIT_COUNT)
    with torch.no_grad():
        right = model(test).argmax(-1) == test[:, -1 - distance]
    return 100 * float(right.float().mean())


WIDTHS, SCALING_STEPS = (8, 16, 32, 64, 128), 300


@deterministic(threads=1)
def scaling(seed: int) -> ResultTable:
    """The recipe gpt-chars in five widths, the same number of tokens each; loss on held-out text."""
    points = [_trained(width, seed) for width in WIDTHS]
    slope, start = _line([(math.log(size), math.log(loss)) for size, loss in points])
    rows = tuple(
        (str(width), float(size), loss, math.exp(start + slope * math.log(size)))
        for width, (size, loss) in zip(WIDTHS, points, strict=True)
    )
    columns = (
        Words("width", "维度"),
        Words("parameters", "参数量"),
        Words("held-out loss", "验证集损失"),
        Words(f"straight line: N^{slope:.3f}", f"直线拟合：N^{slope:.3f}"),
    )
    return ResultTable(columns, rows, bar=2, plot=(1, 2))


def _trained(width: int, seed: int) -> tuple[int, float]:
    """Parameters and held-out loss of one size. Wider models get a smaller learning rate, as they need."""
    settings = [
        f"model.n_embd={width}",
        "model.n_layer=2",
        f"train.steps={SCALING_STEPS}",
        f"train.lr={0.004 * math.sqrt(32 / width)}",
        "train.schedule.warmup=20",
        f"train.seed={seed}",
    ]
    prepared = prepare(load_run("gpt-chars", settings))
    model, state = prepared.bundle.model, TrainingState()
    update = OptimizerStep(model.train(), prepared.task, prepared.run.train, width)
    for step in range(1, SCALING_STEPS + 1):
        update.run(step, state, lambda: False)
    size = sum(p.numel() for p in model.parameters())
    return size, float(prepared.task.score(model.eval(), "valid")["loss"])


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: slope and start."""
    xs, ys = (torch.tensor(each, dtype=torch.float64) for each in zip(*points, strict=True))
    slope = float(((xs - xs.mean()) * (ys - ys.mean())).sum() / ((xs - xs.mean()) ** 2).sum())
    return slope, float(ys.mean()) - slope * float(xs.mean())
