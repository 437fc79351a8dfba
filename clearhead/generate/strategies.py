"""Strategies: logits in, the next token of every row out. Here those that follow one row per answer.

Shape suffixes: B requests, R rows, V vocabulary, C candidates, N their last new tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..nn.init import generator
from .filters import Filter
from .records import Hypothesis, Reason, Step
from .said import Said
from .stops import Stop


@dataclass(frozen=True)
class Rules:
    """What holds for a whole run, whatever the strategy."""

    filters: Sequence[Filter] = ()
    stops: Sequence[Stop] = ()
    alternatives: int = 0  # how many of the likeliest tokens each step tells
    record: bool = False  # beams: tell every hypothesis that was looked at

    def filtered(self, scores_RV: Tensor, said: Said) -> Tensor:
        for rule in self.filters:
            scores_RV = rule(scores_RV, said)
        return scores_RV

    def ends(self, said: Said, parents_C: Tensor, tokens_C: Tensor) -> Tensor:
        """Why each candidate has ended: a number for `reason`, below zero where it goes on."""
        tail_CN = said.tail(parents_C, tokens_C, max((stop.reach for stop in self.stops), default=1))
        code_C = torch.where(said.left_R[parents_C] <= 1, len(self.stops), -1)
        for code, stop in reversed(list(enumerate(self.stops))):
            code_C = code_C.masked_fill(stop.hit(tail_CN), code)
        return code_C

    def reason(self, code: int) -> Reason:
        return self.stops[code].reason if code < len(self.stops) else "length"


class Search:
    """A strategy in the middle of a run: it decides, and keeps the hypotheses that have ended."""

    each = 1  # how many rows, side by side, share the source of one request

    def __init__(self, rules: Rules, said: Said, requests: int) -> None:
        self.rules, self.said = rules, said
        self.finished: list[list[Hypothesis]] = [[] for _ in range(requests)]

    def turn(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        """One turn: what was decided, and the rows that go on, each with its new token in `said`."""
        raise NotImplementedError


class Strategy:
    """How the next token is chosen: a frozen value; `search` begins a run with it."""

    @property
    def rows(self) -> int:
        """How many rows each request needs."""
        return 1

    def search(self, rules: Rules, said: Said, requests: int) -> Search:
        raise NotImplementedError


class RowStrategy(Strategy):
    """Every row is an answer of its own."""

    def search(self, rules: Rules, said: Said, requests: int) -> Search:
        return _Rows(self, rules, said, requests)

    def pick(self, scores_RV: Tensor, rows: Sequence[Row], step: int) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Row:
    request: int
    sample: int  # which answer to the request


@dataclass(frozen=True)
class Greedy(RowStrategy):
    """The likeliest token, always."""

    def pick(self, scores_RV: Tensor, rows: Sequence[Row], step: int) -> Tensor:
        return likeliest(scores_RV)


@dataclass(frozen=True)
class Sample(RowStrategy):
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

    def pick(self, scores_RV: Tensor, rows: Sequence[Row], step: int) -> Tensor:
        vocab = scores_RV.shape[-1]
        noise = [gumbel(vocab, seed_of(self.seed, row.request), row.sample, step) for row in rows]
        return likeliest(scores_RV + torch.stack(noise).to(scores_RV))


def gumbel(count: int, seed: int, *purpose: str | int) -> Tensor:
    """Noise whose winner, added to log-probabilities, is a draw from them (Gumbel 1954)."""
    race = torch.empty(count, dtype=torch.float64)
    return -race.exponential_(generator=generator(seed, "sample", *purpose)).log()


def seed_of(seed: int | tuple[int, ...], request: int) -> int:
    if isinstance(seed, int):
        return seed
    if request >= len(seed):
        raise InputError(f"{len(seed)} seeds were given for more requests; give one seed, or one for each")
    return seed[request]


def likeliest(scores_RV: Tensor) -> Tensor:
    best, tokens_R = scores_RV.max(-1)
    if not bool(best.isfinite().all()):
        blocked = bool(best.isneginf().any())
        raise InputError(
            "the filters leave no token to say; loosen them"
            if blocked
            else "the model's logits are not finite: its weights are damaged, or overflow in this dtype"
        )
    return tokens_R


def logprobs_of(logits_RV: Tensor, tokens_R: Tensor) -> Tensor:
    return logits_RV.gather(1, tokens_R[:, None])[:, 0] - logits_RV.logsumexp(-1)


def alternatives(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
    if not count:
        return None
    best = logits_RV.log_softmax(-1).topk(min(count, logits_RV.shape[-1]))
    return best.indices, best.values


class _Rows(Search):
    def __init__(self, strategy: RowStrategy, rules: Rules, said: Said, requests: int) -> None:
        super().__init__(rules, said, requests)
        self.strategy = strategy
        self.rows = [Row(request, n) for request in range(requests) for n in range(strategy.rows)]
        self._ended: dict[Row, Hypothesis] = {}

    def turn(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        said = self.said
        tokens_R = self.strategy.pick(self.rules.filtered(logits_RV, said), self.rows, said.count)
        logprobs_R = logprobs_of(logits_RV, tokens_R)
        codes_R = self.rules.ends(said, torch.arange(len(tokens_R), device=tokens_R.device), tokens_R)
        said.add(tokens_R, logprobs_R)
        requests_R = torch.tensor([row.request for row in self.rows])
        step = Step(requests_R, tokens_R, logprobs_R, alternatives(logits_RV, self.rules.alternatives))
        going_R = (codes_R < 0).nonzero()[:, 0]
        if len(going_R) < len(codes_R):
            self._end(codes_R.tolist())
            self.rows = [self.rows[r] for r in going_R.tolist()]
            said.keep(going_R)
        return step, going_R

    def _end(self, codes: list[int]) -> None:
        for r, code in enumerate(codes):
            if code >= 0:
                ids, logprobs = self.said.new_RN[r].tolist(), self.said.logprobs_RN[r].tolist()
                self._ended[self.rows[r]] = Hypothesis(ids, logprobs, sum(logprobs), self.rules.reason(code))
        for request, answers in enumerate(self.finished):
            rows = [Row(request, n) for n in range(self.strategy.rows)]
            if not answers and all(row in self._ended for row in rows):
                answers.extend(self._ended[row] for row in rows)
