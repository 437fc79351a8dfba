"""Loss by token: one row of a real batch in; which tokens have a label, and the loss of each, out.

The loss of one token is what the task itself computes when only that token is left to learn; the parts
add up to the whole.
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

INPUTS = ("target_BT", "ids_BT")  # what stands at the same places as the labels, in order of preference


class TokenLoss(NamedTuple):
    """One place of a row: what is read there, and what is to be said there, if anything."""

    token: Token
    wanted: Token | None
    loss: float | None


@torch.no_grad()
def token_losses(
    batch: Any, loss: Callable[[Any], Tensor], tokenizer: Tokenizer | None, row: int = 0
) -> list[TokenLoss]:
    """`loss` is the task's: the sum over the labelled tokens of a batch."""
    names = {field.name for field in fields(batch)} if is_dataclass(batch) else set()
    read = next((name for name in INPUTS if name in names), None)
    if read is None or "labels_BT" not in names:
        raise InputError("loss by token needs a batch with a label for every token; this task has none")
    one = replace(batch, **{name: x[row : row + 1] for name, x in _tensors(batch)})
    labels = one.labels_BT[0].tolist()
    tokens = of_ids(getattr(one, read)[0].tolist(), tokenizer)
    losses = []
    for at, (token, label) in enumerate(zip(tokens, labels, strict=True)):
        if label == IGNORE_INDEX:
            losses.append(TokenLoss(token, None, None))
            continue
        alone = torch.full_like(one.labels_BT, IGNORE_INDEX)
        alone[0, at] = label
        amount = float(loss(replace(one, labels_BT=alone)))
        losses.append(TokenLoss(token, of_ids([label], tokenizer)[0], amount))
    return losses


def _tensors(batch: Any) -> list[tuple[str, Tensor]]:
    found = ((field.name, getattr(batch, field.name)) for field in fields(batch))
    return [(name, x) for name, x in found if isinstance(x, Tensor) and x.ndim > 0]
