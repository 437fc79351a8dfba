"""What the experiments stand on: a table of findings, a small model, a few steps of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...nn import (
    MLP,
    OFF,
    Attention,
    Block,
    SingleStack,
    Sinusoidal,
    Tap,
    TokenHead,
    Tokens,
    Tower,
    TransformerModel,
    generator,
)
from ...nn import norm as norms
from ...tasks import Better
from ...train import OptimizerStep, Training, TrainingState


class Words(NamedTuple):
    en: str
    zh: str


Cell = Words | str | float


@dataclass(frozen=True)
class ResultTable:
    """A table; the column numbered `bar` is drawn as bars beside it.

    With `plot`, two columns of numbers are also drawn as points, both axes logarithmic: (x, y).
    """

    columns: tuple[Words, ...]
    rows: tuple[tuple[Cell, ...], ...]
    bar: int
    plot: tuple[int, int] | None = None


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed, "try", *shape))


def digits(seed: int, *shape: int, below: int = 10) -> Tensor:
    return torch.randint(below, shape, generator=generator(seed, "digits", *shape))


def small(depth: int = 2, *, causal: bool = True, vocab: int = 10, width: int = 32) -> SingleStack:
    """A GPT of a few thousand numbers; experiments edit it."""
    block = Block(attention=Attention(heads=4, bias="qkvo"), feedforward=MLP(hidden=2 * width))
    return SingleStack(
        tower=Tower(
            width=width,
            depth=depth,
            causal=causal,
            embed=Tokens(vocab=vocab),
            positions=Sinusoidal(),
            block=block,
            last_norm=norms.Layer(),
        ),
        head=TokenHead(vocab=vocab),
    )


@dataclass(frozen=True)
class Rows:
    inputs: Tensor
    labels: Tensor

    @property
    def targets(self) -> int:
        return self.labels.numel()


@dataclass(frozen=True)
class Game:
    """A task that is made of its step's number: `deal(step)` gives inputs and labels."""

    deal: Callable[[int], Rows]
    tap: Callable[[], Tap] = lambda: OFF

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    @property
    def fingerprint(self) -> Mapping[str, str]:
        return {}

    def batch(self, step: int, micro: int) -> Rows:
        return self.deal(step)

    def loss(self, model: TransformerModel, batch: Rows) -> Tensor:
        logits = model(batch.inputs, tap=self.tap())
        return F.cross_entropy(logits.flatten(0, -2), batch.labels.flatten(), reduction="sum")

    def score(self, model: TransformerModel, split: str) -> Mapping[str, float]:
        return {}

    def samples(self, model: TransformerModel) -> list[str]:
        return []


def train(model: TransformerModel, game: Game, steps: int, lr: float = 3e-3) -> list[float]:
    """The loss of each step."""
    update = OptimizerStep(model.train(), game, Training(steps=steps, lr=lr), model.spec.head_tower.width)
    state, losses = TrainingState(), []
    for step in range(1, steps + 1):
        measured = update.run(step, state, lambda: False)
        assert measured is not None
        losses.append(measured.loss)
    model.eval()
    return losses


def built(spec: SingleStack, seed: int) -> TransformerModel:
    return spec.build(seed=seed)
