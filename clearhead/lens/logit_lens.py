"""The logit lens (nostalgebraist 2020): the stream after each layer in, what the head would say of it out."""

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
ROWS = 64  # tokens whose logits are held at a time


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The likeliest answers after each layer; for a model that labels whole texts T is one.

    `ids` and `probabilities` are (L + 1, T, top), the embedding first; `labels` are the same as words.
    """

    ids: Tensor
    probabilities: Tensor
    labels: list[list[list[str]]]

    def at(self, positions: slice) -> LogitLens:
        """The same for some of the tokens."""
        labels = [layer[positions] for layer in self.labels]
        return LogitLens(self.ids[:, positions], self.probabilities[:, positions], labels)


def logit_lens(
    model: TransformerModel,
    streams_LTD: Tensor | Sequence[Tensor],
    tokenizer: Tokenizer | None,
    top: int,
    positions: slice = EVERY,
) -> LogitLens:
    """The head reads only `positions`, one layer and at most ROWS tokens at a time, and only its `top` logits
    are kept: memory is that of ROWS times the vocabulary, whatever the depth and the length of the text.
    A head that answers for a whole text reads all of it."""
    head = model.spec.head
    if head is None:
        raise InputError("the logit lens needs a head that guesses words or labels; this model has none")
    tower = model.head_stack
    if tower.spec.out_width != streams_LTD[0].shape[-1]:
        raise InputError("the logit lens reads one stream; the head of this model reads two (reversible)")
    each_token = isinstance(head, WordHead | Tags | Span)
    ids, chances = [], []
    with torch.no_grad():
        for x_TD in streams_LTD:
            pieces = x_TD[positions].split(ROWS) if each_token else (x_TD,)
            best = [_best(model, tower, piece, top) for piece in pieces]
            ids.append(torch.cat([i for i, _ in best]))
            chances.append(torch.cat([p for _, p in best]))
    found = torch.stack(ids)
    words = tokenizer if isinstance(head, WordHead) else None
    return LogitLens(found, torch.stack(chances), token_labels(found, words))


def _best(model: TransformerModel, tower: Stack, x_TD: Tensor, top: int) -> tuple[Tensor, Tensor]:
    states = x_TD[None] if tower.norm is None else tower.norm(x_TD[None])
    answer = model.read(States(states))[0]
    answer = answer[None] if answer.ndim == 1 else answer
    logits, ids = answer.topk(min(top, answer.shape[-1]), -1)
    # softmax of the few that are kept: exp(x - log of the sum over all)
    return ids, (logits.float() - answer.float().logsumexp(-1, keepdim=True)).exp()


def token_labels(ids_LTK: Tensor, tokenizer: Tokenizer | None) -> list[list[list[str]]]:
    """Every id alone, as a word; each different id is decoded once."""
    known = {i: of_ids([i], tokenizer)[0].label for i in set(ids_LTK.flatten().tolist())}
    return [[[known[i] for i in row] for row in layer] for layer in ids_LTK.tolist()]
