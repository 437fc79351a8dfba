"""Results example by example: what a model predicted for each, how wrong it was, and scores of each class.

A task's `evaluate` gives an `Evaluation`: the scores of `score`, and one `ExampleOutcome` per example.
Confusion matrices, precision and recall of each class and lists of the worst examples come from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor

from ..data import IGNORE_INDEX
from ..nn import States, TransformerModel
from ..nn.norm import widen

NONE = ""  # in a pair of classes: a class that is missing on one side, where an example may have several


@dataclass(frozen=True)
class ExampleOutcome:
    """What a model made of one example. Texts are empty where a task has none to show."""

    example: int  # index in its split
    reference: str
    prediction: str
    error: float  # larger is worse; `Evaluation.measure` says in what
    loss: float  # summed over its targets
    targets: int
    classes: tuple[tuple[str, str], ...] = ()  # (reference, prediction) of each decision between classes


@dataclass(frozen=True)
class ClassScores:
    """Of 100, but for `support`: how often the class is the reference."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Evaluation:
    scores: dict[str, float]
    outcomes: list[ExampleOutcome] = field(default_factory=list)  # in the order of the examples
    measure: str = "loss"  # what `ExampleOutcome.error` is
    names: tuple[str, ...] = ()  # the classes, in the order of the model
    per_class: Mapping[str, ClassScores] = field(default_factory=dict)

    def worst(self, count: int) -> list[ExampleOutcome]:
        """The outcomes with the largest error, without those that are right to the last bit."""
        wrong = [outcome for outcome in self.outcomes if outcome.error > 0]
        return sorted(wrong, key=lambda outcome: (-outcome.error, outcome.example))[:count]

    def confusion(self) -> list[list[int]] | None:
        """Rows are references, columns predictions, both in the order of `names`; None without classes that
        exclude each other.
        """
        pairs = Counter(pair for outcome in self.outcomes for pair in outcome.classes)
        if not pairs or any(NONE in pair for pair in pairs):
            return None
        return [[pairs[one, two] for two in self.names] for one in self.names]


def mean_loss(outcomes: Sequence[ExampleOutcome]) -> float:
    """Per target."""
    return sum(outcome.loss for outcome in outcomes) / max(sum(outcome.targets for outcome in outcomes), 1)


def scores_per_class(outcomes: Sequence[ExampleOutcome], names: Sequence[str]) -> dict[str, ClassScores]:
    """Precision, recall and F1 of every class that is a reference or a prediction."""
    pairs = Counter(pair for outcome in outcomes for pair in outcome.classes)
    wanted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for (one, two), count in pairs.items():
        wanted[one] += count
        found[two] += count
    return {
        name: _class_scores(pairs[name, name], found[name], wanted[name])
        for name in names
        if found[name] or wanted[name]
    }


def _class_scores(both: int, found: int, wanted: int) -> ClassScores:
    precision, recall = (100 * both / count if count else 0.0 for count in (found, wanted))
    return ClassScores(precision, recall, 200 * both / (found + wanted), wanted)


def class_losses(logits: Tensor, labels: Tensor) -> list[float]:
    """The loss of each row of class logits (B, C) or (B, T, C), summed over the labels it has."""
    flat = F.cross_entropy(
        widen(logits.flatten(0, -2)), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="none"
    )
    rows: list[float] = flat.view(len(labels), -1).sum(1).tolist()
    return rows


def losses_of_rows(model: TransformerModel, states: States, labels_BT: Tensor) -> list[float]:
    """The loss of each row, summed over its labelled tokens; logits are computed for these alone."""
    where_BT = labels_BT != IGNORE_INDEX
    logits_NV = widen(model.read(States(states.x_BTD[where_BT][None]))[0])
    losses_N = F.cross_entropy(logits_NV, labels_BT[where_BT], reduction="none").cpu()
    row_N = where_BT.nonzero()[:, 0].cpu()
    sums: list[float] = losses_N.new_zeros(len(labels_BT)).index_add(0, row_N, losses_N).tolist()
    return sums
