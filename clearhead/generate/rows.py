"""Strategies that follow one row per answer: the likeliest token, or one drawn by its probability.

Shape suffixes: R rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .records import Hypothesis, Row, Step
from .said import Said
from .search import (
    Rules,
    Search,
    Strategy,
    alternatives,
    check_finite,
    gumbel,
    likeliest,
    seed_of,
)
from .speaker import Speaker

EACH = slice(None)  # every row goes on from itself


class RowSearch(Search):
    """Every row is an answer of its own; a row that has ended is left out, and the others go on."""

    def __init__(self, rules: Rules, said: Said, voice: Speaker, requests: int, each: int = 1) -> None:
        super().__init__(rules, said, voice, requests)
        self.rows = [Row(request, n) for request in range(requests) for n in range(each)]
        self._answers = each
        self._ended: dict[Row, Hypothesis] = {}

    def pick(self, scores_RV: Tensor) -> Tensor:
        """The next token of every row."""
        raise NotImplementedError

    def turn(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        said = self.said
        check_finite(total_R := logits_RV.logsumexp(-1))
        tokens_R = self.pick(self.rules.filtered(logits_RV, said))
        logprobs_R = logits_RV.gather(1, tokens_R[:, None])[:, 0] - total_R
        codes_R = self.rules.ends(said, EACH, tokens_R)
        said.add(tokens_R, logprobs_R)
        step = Step(list(self.rows), tokens_R, logprobs_R, alternatives(logits_RV, self.rules.alternatives))
        going_R = (codes_R < 0).nonzero()[:, 0]
        if len(going_R) < len(codes_R):
            self._end(codes_R.tolist())
            self.leave(going_R)
        return step, going_R

    def leave(self, going_R: Tensor) -> None:
        """Go on with these rows alone."""
        self.rows = [self.rows[r] for r in going_R.tolist()]
        self.said.keep(going_R)

    def guess(self, logits_RV: Tensor) -> Tensor:
        tokens_R = self.pick(self.rules.filtered(logits_RV, self.said))
        self.said.add(tokens_R, torch.zeros(len(tokens_R), device=tokens_R.device))
        return tokens_R

    def take_back(self, count: int) -> None:
        self.said.undo(count)

    def _end(self, codes: list[int]) -> None:
        for r, code in enumerate(codes):
            if code >= 0:
                ids, logprobs = self.said.new_RN[r].tolist(), self.said.logprobs_RN[r].tolist()
                self._ended[self.rows[r]] = Hypothesis(ids, logprobs, sum(logprobs), self.rules.reason(code))
        for request, answers in enumerate(self.finished):
            rows = [Row(request, n) for n in range(self._answers)]
            if not answers and all(row in self._ended for row in rows):
                answers.extend(self._ended[row] for row in rows)


@dataclass(frozen=True)
class Greedy(Strategy):
    """The likeliest token, always."""

    def search(self, rules: Rules, said: Said, voice: Speaker, requests: int) -> Search:
        return _Greedy(rules, said, voice, requests)


class _Greedy(RowSearch):
    def pick(self, scores_RV: Tensor) -> Tensor:
        return likeliest(scores_RV)


@dataclass(frozen=True)
class Sample(Strategy):
    """A token drawn by its probability; shape the draw with filters.

    The noise is a function of the request's seed, the answer's number and the step, so a request gets the
    same answer alone and in any batch. `seed` is one for all requests, or one for each.
    """

    seed: int | tuple[int, ...] = 0
    count: int = 1  # answers to each request

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"{self.count} answers were asked for, expected 1 or more")

    @property
    def rows(self) -> int:
        return self.count

    def search(self, rules: Rules, said: Said, voice: Speaker, requests: int) -> Search:
        return _Sample(self, rules, said, voice, requests)


class _Sample(RowSearch):
    def __init__(self, strategy: Sample, rules: Rules, said: Said, voice: Speaker, requests: int) -> None:
        super().__init__(rules, said, voice, requests, each=strategy.count)
        self._seeds = [seed_of(strategy.seed, request) for request in range(requests)]

    def pick(self, scores_RV: Tensor) -> Tensor:
        vocab, step = scores_RV.shape[-1], self.said.count
        noise = [gumbel(vocab, self._seeds[row.request], row.number, step) for row in self.rows]
        return likeliest(scores_RV + torch.stack(noise).to(scores_RV))
