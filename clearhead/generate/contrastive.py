"""Contrastive search (Su 2022): of the likeliest tokens, the one whose state is least like what was said.

Every candidate is said on trial, to see its hidden state; then all are taken back and the best is said.
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
        likeness_RK = self._try(best.indices)
        value_RK = (1 - self.strategy.alpha) * best.values - self.strategy.alpha * likeness_RK
        value_RK = value_RK.masked_fill(~(best.values > 0), float("-inf"))  # blocked by a filter
        return best.indices.gather(1, likeliest(value_RK)[:, None])[:, 0]

    def leave(self, going_R: Tensor) -> None:
        super().leave(going_R)
        self._context_RTD = self._context_RTD[going_R]

    def _remember(self, states_RTD: Tensor) -> None:
        count = states_RTD.shape[1]
        self._context_RTD[:, self._known : self._known + count] = F.normalize(states_RTD, dim=-1)
        self._known += count

    def _try(self, tokens_RK: Tensor) -> Tensor:
        """How like each candidate's state is to the likest state of its context."""
        rows, k = tokens_RK.shape
        every = torch.arange(rows, device=tokens_RK.device)
        self.voice.keep(every.repeat_interleave(k), each=k)
        self.voice.say(tokens_RK.reshape(-1, 1))
        states_RKD = F.normalize(self.voice.states_RTD[:, -1], dim=-1).view(rows, k, -1)
        self.voice.forget(1)
        self.voice.keep(every * k)
        likeness_RKT = states_RKD @ self._context_RTD[:, : self._known].mT
        unreal_RT = ~self.said.real_RT
        return likeness_RKT.masked_fill(unreal_RT[:, None], -1.0).max(-1).values.float()
