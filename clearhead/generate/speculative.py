"""Speculative decoding (Leviathan 2022): a draft model proposes tokens, the target checks all in one call.

This is just another runner. The strategy chooses from the target's logits as always; if its choice is the
proposed token, the next logits are there already. So the output is the same with and without a draft,
sampling included: noise is a function of the step, and the draft proposes with the same noise.
Shape suffixes: R rows (one), T tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..nn import TransformerModel
from .runner import DecoderRunner, Proposer, Runner

ONE_SEQUENCE = "speculative decoding supports one sequence: drop num_beams and num_return_sequences"


@dataclass(frozen=True)
class Draft:
    """The draft model, and how many tokens it proposes before the target checks them."""

    model: TransformerModel
    ahead: int = 5


class SpeculativeRunner(Runner):
    def __init__(self, target: DecoderRunner, draft: DecoderRunner, ahead: int) -> None:
        if len(target.prompt_RT) != 1:
            raise InputError(
                f"speculative decoding takes one request at a time; given {len(target.prompt_RT)}"
            )
        super().__init__(target.prompt_RT, target.real_RT)
        self.proposed = self.accepted = 0
        self._target, self._draft, self._ahead = target, draft, ahead
        self._accepted_ids: list[int] = []  # after the prompt
        self._draft_length = 0  # how many of these the draft's cache holds
        self._proposals: list[int] = []  # what the target has read beyond the accepted ids
        self._ready: list[Tensor] = []  # its logits after each of them

    def attach(self, search: Proposer) -> None:
        self._search = search

    def prefill(self) -> Tensor:
        logits_RV, draft_RV = self._target.prefill(), self._draft.prefill()
        if logits_RV.shape != draft_RV.shape:
            raise InputError(
                f"the draft has a vocabulary of {draft_RV.shape[-1]}, the model {logits_RV.shape[-1]}; they "
                f"must have the same tokenizer"
            )
        self.states_RTD = self._target.states_RTD
        return logits_RV

    def step(self, new_RT: Tensor) -> Tensor:
        token = int(new_RT[0, -1])
        if self._proposals and self._proposals[0] == token:
            self._proposals.pop(0)
            self._accepted_ids.append(token)
            self.accepted += 1
            return self._ready.pop(0)
        # Rejected: both caches drop what was proposed beyond the accepted ids.
        self._target.rollback(len(self._proposals))
        self._draft.rollback(max(0, self._draft_length - len(self._accepted_ids)))
        self._draft_length = min(self._draft_length, len(self._accepted_ids))
        self._accepted_ids.append(token)
        self._look_ahead(new_RT)
        self.states_RTD = self._target.states_RTD
        return self._ready.pop(0)

    def reorder(self, rows_R: Tensor, rows_per_source: int = 1) -> None:
        if len(rows_R) != 1:
            raise InputError(ONE_SEQUENCE)

    def _look_ahead(self, new_RT: Tensor) -> None:
        """Propose a few tokens, and have the target read them all."""
        self._proposals = []
        fresh = new_RT.new_tensor([self._accepted_ids[self._draft_length :]])
        for _ in range(min(self._ahead, self._search.remaining() - 1)):
            token_R = self._search.propose(self._draft.step(fresh))
            self._proposals.append(int(token_R))
            fresh = token_R[:, None]
        # The last proposal was chosen but never read by the draft.
        self._draft_length = len(self._accepted_ids) + max(0, len(self._proposals) - 1)
        self._search.rollback(len(self._proposals))
        self.proposed += len(self._proposals)
        self._target.step(torch.cat([new_RT, new_RT.new_tensor([self._proposals])], dim=1))
        self._ready = list(self._target.logits(len(self._proposals) + 1).unbind(1))
