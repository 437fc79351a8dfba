"""Speculation (Leviathan 2022): a small model guesses ahead, the large one reads all guesses in one call.

This is only another speaker. The strategy above it chooses from the large model's logits as ever; where its
choice is what was guessed, the next logits are there already. So what is said is the same with and without a
draft, drawn tokens included, because noise is a function of the step: the draft guesses with the same noise.
Shape suffixes: R rows (one), T tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..nn.model import PairModel, SingleModel
from .speaker import Chooser, Speaker


@dataclass(frozen=True)
class Draft:
    """The smaller model, and how many tokens it guesses before the large one looks."""

    model: SingleModel | PairModel
    ahead: int = 5


class Speculator(Speaker):
    def __init__(self, target: Speaker, draft: Speaker, ahead: int) -> None:
        if len(target.begun_RT) != 1:
            raise InputError(f"a draft guesses for one request at a time; given {len(target.begun_RT)}")
        super().__init__(target.begun_RT, target.real_RT)
        self.guessed = self.right = 0
        self._target, self._draft, self._ahead = target, draft, ahead
        self._said: list[int] = []  # after the prompt
        self._heard = 0  # how many of these the draft's cache holds
        self._guesses: list[int] = []  # what the target has read beyond what was said
        self._ready: list[Tensor] = []  # its logits after each of them

    def follow(self, search: Chooser) -> None:
        self._search = search

    def hear(self) -> Tensor:
        logits_RV, theirs_RV = self._target.hear(), self._draft.hear()
        if logits_RV.shape != theirs_RV.shape:
            raise InputError(
                f"the draft has a vocabulary of {theirs_RV.shape[-1]}, the model {logits_RV.shape[-1]}; they "
                f"must have the same tokenizer"
            )
        self.states_RTD = self._target.states_RTD
        return logits_RV

    def say(self, new_RT: Tensor, real_RT: Tensor | None = None) -> Tensor:
        token = int(new_RT[0, -1])
        if self._guesses and self._guesses[0] == token:
            self._guesses.pop(0)
            self._said.append(token)
            self.right += 1
            return self._ready.pop(0)
        self._target.forget(len(self._guesses))
        self._draft.forget(max(0, self._heard - len(self._said)))
        self._heard = min(self._heard, len(self._said))
        self._said.append(token)
        self._look_ahead(new_RT)
        self.states_RTD = self._target.states_RTD
        return self._ready.pop(0)

    def keep(self, rows_R: Tensor, each: int = 1) -> None:
        if len(rows_R) != 1:
            raise InputError("a draft guesses for one answer at a time; leave out beams and several answers")

    def _look_ahead(self, new_RT: Tensor) -> None:
        """Guess a few tokens, and have the target read them all."""
        self._guesses = []
        fresh = new_RT.new_tensor([self._said[self._heard :]])
        for _ in range(min(self._ahead, self._search.left() - 1)):
            token_R = self._search.guess(self._draft.say(fresh))
            self._guesses.append(int(token_R))
            fresh = token_R[:, None]
        self._heard = len(self._said) + max(0, len(self._guesses) - 1)
        self._search.take_back(len(self._guesses))
        self.guessed += len(self._guesses)
        self._target.say(torch.cat([new_RT, new_RT.new_tensor([self._guesses])], dim=1))
        self._ready = list(self._target.read(len(self._guesses) + 1).unbind(1))
