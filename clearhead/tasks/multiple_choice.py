"""Multiple choice: a question with several answers in; which one is right, and accuracy, out.

Each choice is a row of its own that the model scores with one number; a softmax over the choices of a
question follows. Shape suffixes: B questions, C choices of the question with the most, N choices of all,
T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..nn import TransformerModel
from .bucketed import BucketedTask, pad_ids, padding_mask, segment_types
from .losses import Smoothing, class_loss
from .outcomes import Evaluation, ExampleOutcome, class_losses, mean_loss
from .task import Better


@dataclass(frozen=True)
class ChoiceExample:
    """Question and choice side by side, for each choice; `answer` is the index of the right one."""

    ids: Sequence[Sequence[int]]
    answer: int
    types: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True)
class ChoiceBatch:
    ids_NT: Tensor
    mask_NT: Tensor
    types_NT: Tensor | None
    slots_N: Tensor  # where a choice stands in (B, C), flat
    answers_B: Tensor
    choices: int  # C

    @property
    def tokens(self) -> int:
        return int(self.mask_NT.sum())

    @property
    def targets(self) -> int:
        return len(self.answers_B)


class MultipleChoice(BucketedTask[ChoiceExample, ChoiceBatch]):
    @property
    def better(self) -> Better:
        return Better("accuracy", larger=True)

    def size(self, example: ChoiceExample) -> tuple[int, ...]:
        return (len(example.ids) * max(map(len, example.ids)),)

    def collate(self, examples: Sequence[ChoiceExample], key: int) -> ChoiceBatch:
        most = max(len(x.ids) for x in examples)
        rows = [ids for x in examples for ids in x.ids]
        typed = [types for x in examples for types in x.types or ()]
        slots = [number * most + choice for number, x in enumerate(examples) for choice in range(len(x.ids))]
        return ChoiceBatch(
            pad_ids(rows, self.pad),
            padding_mask(rows),
            pad_ids(typed, 0) if len(typed) == len(rows) else None,
            torch.tensor(slots),
            torch.tensor([x.answer for x in examples]),
            most,
        )

    def summed_loss(self, model: TransformerModel, batch: ChoiceBatch, smoothing: Smoothing) -> Tensor:
        return class_loss(_scores(model, batch), batch.answers_B, smoothing)

    @torch.no_grad()
    def evaluate(self, model: TransformerModel, split: str) -> Evaluation:
        """References and predictions are indices of choices."""
        outcomes: list[ExampleOutcome] = []
        for rows, batch in self.numbered_batches(model, split):
            scores_BC, answers_B = _scores(model, batch).float().cpu(), batch.answers_B.cpu()
            losses = class_losses(scores_BC, answers_B)
            each = zip(rows, scores_BC.argmax(-1).tolist(), answers_B.tolist(), losses, strict=True)
            outcomes += [
                ExampleOutcome(i, str(truth), str(guess), loss, loss, 1) for i, guess, truth, loss in each
            ]
        outcomes.sort(key=lambda outcome: outcome.example)
        right = sum(outcome.prediction == outcome.reference for outcome in outcomes)
        return Evaluation({"loss": mean_loss(outcomes), "accuracy": 100 * right / len(outcomes)}, outcomes)

    def samples(self, model: TransformerModel) -> list[str]:
        return []


def _scores(model: TransformerModel, batch: ChoiceBatch) -> Tensor:
    """(B, C): the score of every choice; those that a question does not have get the lowest number."""
    if model.spec.inputs > 1:
        raise InputError("multiple choice needs a model with one tower")
    scores_N1: Tensor = model(batch.ids_NT, batch.mask_NT, types=segment_types(model, batch.types_NT))
    lowest = torch.finfo(scores_N1.dtype).min
    flat = F.pad(scores_N1.new_empty(0), (0, batch.targets * batch.choices), value=lowest)
    return flat.index_put((batch.slots_N,), scores_N1[:, 0]).view(batch.targets, batch.choices)
