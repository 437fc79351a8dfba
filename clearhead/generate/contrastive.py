"""Contrastive search (Su 2022): of the likeliest tokens, the one whose state is least like what was said.

Every candidate is said on trial, to see its hidden state; the best one stays said.
Shape suffixes: R rows, K candidates, T tokens so far, V vocabulary, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from .rows import RowSearch
from .said import Said
from .search import Rules, Search, Strategy, likeliest
from .speaker import Speaker


@dataclass(frozen=True)
class Contrastive(Strategy):
    """(1 - alpha) * probability - alpha * likeness to the context, over the `k` likeliest tokens."""

    k: int = 4
    alpha: float = 0.6

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"top_k is {self.k}, expected 1 or more")
        if not 0 <= self.alpha <= 1:
            raise InputError(f"penalty_alpha is {self.alpha}, expected a number from 0 to 1")

    def search(self, rules: Rules, said: Said, voice: Speaker, requests: int) -> Search:
        return _Contrast(self, rules, said, voice, requests)


class _Contrast(RowSearch):
    def __init__(
        self, strategy: Contrastive, rules: Rules, said: Said, voice: Speaker, requests: int
    ) -> None:
        super().__init__(rules, said, voice, requests)
        self.strategy = strategy
        width = voice.states_RTD.shape[-1]
        self._context_RTD = voice.states_RTD.new_zeros(requests, said.capacity, width)
        self._known = 0

    def pick(self, scores_RV: Tensor) -> Tensor:
        self._remember(self.voice.states_RTD)
        k = min(self.strategy.k, scores_RV.shape[-1])
        best = scores_RV.softmax(-1).topk(k)
        logits_RKV, states_RKD = self._rehearsed(best.indices)
        value_RK = (1 - self.strategy.alpha) * best.values - self.strategy.alpha * self._likeness(states_RKD)
        value_RK = value_RK.masked_fill(~(best.values > 0), float("-inf"))  # blocked by a filter
        every, chosen = torch.arange(len(value_RK), device=value_RK.device), likeliest(value_RK)
        self.voice.keep(every * k + chosen)
        self.voice.states_RTD = states_RKD[every, chosen, None]
        self.voice.foretell(logits_RKV[every, chosen])
        return best.indices[every, chosen]

    def leave(self, going_R: Tensor) -> None:
        super().leave(going_R)
        self._context_RTD = self._context_RTD[going_R]

    def _remember(self, states_RTD: Tensor) -> None:
        count = states_RTD.shape[1]
        self._context_RTD[:, self._known : self._known + count] = F.normalize(states_RTD, dim=-1)
        self._known += count

    def _rehearsed(self, tokens_RK: Tensor) -> tuple[Tensor, Tensor]:
        """Every candidate said on trial: the logits after each, and its state."""
        rows, k = tokens_RK.shape
        every = torch.arange(rows, device=tokens_RK.device).repeat_interleave(k)
        self.voice.keep(every, each=k)
        logits = self.voice.say(tokens_RK.reshape(-1, 1))
        return logits.view(rows, k, -1), self.voice.states_RTD[:, -1].view(rows, k, -1)

    def _likeness(self, states_RKD: Tensor) -> Tensor:
        """How like each candidate's state is to the likest state of its context."""
        context_RTD = self._context_RTD[:, : self._known]
        likeness_RKT = F.normalize(states_RKD, dim=-1) @ context_RTD.mT
        return likeness_RKT.masked_fill(~self.said.real_RT[:, None], -1.0).max(-1).values.float()
