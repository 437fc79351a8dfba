"""Loss by token: one row of a training batch in; the target and the loss of each token out.

The loss of a token is the task's own loss with all other labels ignored, so the losses add up to the total.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data import IGNORE_INDEX
from ..errors import InputError
from ..text import Tokenizer
from .tokens import Token, of_ids

INPUTS = ("target_BT", "ids_BT")  # inputs aligned with the labels, in order of preference


class TokenLoss(NamedTuple):
    """One position of a row: the input token, its target and its loss; None where the label is ignored."""

    token: Token
    target: Token | None
    loss: float | None


@torch.no_grad()
def token_losses(
    batch: Any, loss: Callable[[Any], Tensor], tokenizer: Tokenizer | None, row: int = 0
) -> list[TokenLoss]:
    """`loss` is the loss of the task: the sum over the labelled tokens of a batch."""
    names = {field.name for field in fields(batch)} if is_dataclass(batch) else set()
    input_name = next((name for name in INPUTS if name in names), None)
    if input_name is None or "labels_BT" not in names:
        raise InputError("loss by token needs a batch with a label for every token; this task has none")
    values = ((name, getattr(batch, name)) for name in names)
    tensors = {name: x for name, x in values if isinstance(x, Tensor) and x.ndim > 0}
    one = replace(batch, **{name: x[row : row + 1] for name, x in tensors.items()})
    labels = one.labels_BT[0].tolist()
    tokens = of_ids(getattr(one, input_name)[0].tolist(), tokenizer)
    losses = []
    for position, (token, label) in enumerate(zip(tokens, labels, strict=True)):
        if label == IGNORE_INDEX:
            losses.append(TokenLoss(token, None, None))
            continue
        labels_BT = torch.full_like(one.labels_BT, IGNORE_INDEX)
        labels_BT[0, position] = label
        amount = float(loss(replace(one, labels_BT=labels_BT)))
        losses.append(TokenLoss(token, of_ids([label], tokenizer)[0], amount))
    return losses
