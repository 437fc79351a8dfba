"""The logit lens (nostalgebraist 2020): the stream after each layer in, what the head would say of it out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..nn.context import States
from ..nn.model import PairModel, SingleModel
from ..text.tokenizer import Tokenizer
from .tokens import of_ids


@dataclass(frozen=True, eq=False)
class Guesses:
    """The likeliest answers after each layer; for a model that labels whole texts T is one.

    `ids` and `probabilities` are (L + 1, T, top), the embedding first; `labels` are the same as words.
    """

    ids: Tensor
    probabilities: Tensor
    labels: list[list[list[str]]]


def logit_lens(
    model: SingleModel | PairModel, streams_LTD: Tensor, tokenizer: Tokenizer | None, top: int
) -> Guesses:
    if model.head is None:
        raise InputError("the logit lens needs a head that guesses words or labels; this model has none")
    tower = model.decoder if isinstance(model, PairModel) else model.tower
    if tower.spec.out_width != streams_LTD.shape[-1]:
        raise InputError("the logit lens reads one stream; the head of this model reads two (reversible)")
    rows = []
    with torch.no_grad():
        for x_TD in streams_LTD:
            states = x_TD[None] if tower.norm is None else tower.norm(x_TD[None])
            answer = model.read(States(states))[0]
            rows.append(answer[None] if answer.ndim == 1 else answer)
        found = torch.stack([row.float().softmax(-1).topk(min(top, row.shape[-1]), -1)[0] for row in rows])
        ids = torch.stack([row.topk(min(top, row.shape[-1]), -1)[1] for row in rows])
    words = tokenizer if rows[0].shape[0] == streams_LTD.shape[1] else None
    return Guesses(ids, found, named(ids, words))


def named(ids_LTK: Tensor, tokenizer: Tokenizer | None) -> list[list[list[str]]]:
    """Every id alone, as a word; each different id is decoded once."""
    known = {i: of_ids([i], tokenizer)[0].label for i in set(ids_LTK.flatten().tolist())}
    return [[[known[i] for i in row] for row in layer] for layer in ids_LTK.tolist()]
