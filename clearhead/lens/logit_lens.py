"""The logit lens (nostalgebraist 2020): the residual stream after each layer in; predictions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..nn import Span, Stack, States, Tags, TransformerModel, WordHead
from ..text import Tokenizer
from .tokens import of_ids

EVERY = slice(None)
ROWS = 64  # tokens whose logits are in memory at a time


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The most likely predictions after each layer; T is 1 for a model that labels whole texts.

    `ids` and `probabilities` are (L + 1, T, top), the embedding first; `labels` are the ids as text.
    """

    ids: Tensor
    probabilities: Tensor
    labels: list[list[list[str]]]

    def at(self, positions: slice) -> LogitLens:
        """The predictions at some of the positions."""
        labels = [layer[positions] for layer in self.labels]
        return LogitLens(self.ids[:, positions], self.probabilities[:, positions], labels)


def logit_lens(
    model: TransformerModel,
    streams_LTD: Tensor | Sequence[Tensor],
    tokenizer: Tokenizer | None,
    top: int,
    positions: slice = EVERY,
) -> LogitLens:
    """Apply the last norm and the head to the stream after every layer.

    Only `positions` are computed, one layer and at most ROWS tokens at a time, and only the `top` logits are
    kept, so memory is ROWS times the vocabulary for any depth and length. A head that labels the whole text
    reads all positions.
    """
    head = model.spec.head
    if head is None:
        raise InputError("the logit lens needs a head that predicts tokens or labels; this model has none")
    tower = model.head_stack
    if tower.spec.stream_width != streams_LTD[0].shape[-1]:
        raise InputError("the logit lens reads one stream; the head of this model reads two (reversible)")
    per_token = isinstance(head, WordHead | Tags | Span)
    ids, probabilities = [], []
    with torch.no_grad():
        for x_TD in streams_LTD:
            pieces = x_TD[positions].split(ROWS) if per_token else (x_TD,)
            best = [_top_predictions(model, tower, piece, top) for piece in pieces]
            ids.append(torch.cat([i for i, _ in best]))
            probabilities.append(torch.cat([p for _, p in best]))
    ids_LTK = torch.stack(ids)
    # Ids of labels and tags are not token ids.
    labels = token_labels(ids_LTK, tokenizer if isinstance(head, WordHead) else None)
    return LogitLens(ids_LTK, torch.stack(probabilities), labels)


def _top_predictions(model: TransformerModel, tower: Stack, x_TD: Tensor, top: int) -> tuple[Tensor, Tensor]:
    answer = model.read(States(tower.finish(x_TD[None])))[0]
    answer = answer[None] if answer.ndim == 1 else answer
    logits, ids = answer.topk(min(top, answer.shape[-1]), -1)
    # The softmax of the top logits alone: exp(x - logsumexp of all).
    return ids, (logits.float() - answer.float().logsumexp(-1, keepdim=True)).exp()


def token_labels(ids_LTK: Tensor, tokenizer: Tokenizer | None) -> list[list[list[str]]]:
    """The label of every id; each distinct id is decoded once."""
    label_of = {i: of_ids([i], tokenizer)[0].label for i in set(ids_LTK.flatten().tolist())}
    return [[[label_of[i] for i in row] for row in layer] for layer in ids_LTK.tolist()]
