"""Strategies with one row per sequence: greedy decoding, sampling, and contrastive search.

Shape suffixes: R rows, V vocabulary, K candidates, T tokens so far, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from .results import Hypothesis, SequenceId, Step, TokenBuffer
from .runner import Runner
from .search import Rules, Search, Strategy, alternatives, best_token, check_finite, gumbel, seed_of

EACH = slice(None)  # every row continues itself


class RowSearch(Search):
    """Every row is a sequence of its own; rows that have ended leave the batch, and the others continue."""

    def __init__(
        self, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int, count: int = 1
    ) -> None:
        super().__init__(rules, tokens, runner, requests)
        self.rows = [SequenceId(request, n) for request in range(requests) for n in range(count)]
        self._count = count
        self._ended: dict[SequenceId, Hypothesis] = {}

    def next_tokens(self, scores_RV: Tensor) -> Tensor:
        """The next token of every row."""
        raise NotImplementedError

    def choose(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        check_finite(total_R := logits_RV.logsumexp(-1))
        tokens_R = self.next_tokens(self.rules.apply_filters(logits_RV, self.tokens))
        logprobs_R = logits_RV.gather(1, tokens_R[:, None])[:, 0] - total_R
        codes_R = self.rules.end_codes(self.tokens, EACH, tokens_R)
        self.tokens.append(tokens_R, logprobs_R)
        step = Step(list(self.rows), tokens_R, logprobs_R, alternatives(logits_RV, self.rules.alternatives))
        going_R = (codes_R < 0).nonzero()[:, 0]
        if len(going_R) < len(codes_R):
            self._finish(codes_R.tolist())
            self.keep_rows(going_R)
        return step, going_R

    def keep_rows(self, going_R: Tensor) -> None:
        """Continue with these rows alone."""
        self.rows = [self.rows[r] for r in going_R.tolist()]
        self.tokens.reorder(going_R)

    def propose(self, logits_RV: Tensor) -> Tensor:
        tokens_R = self.next_tokens(self.rules.apply_filters(logits_RV, self.tokens))
        self.tokens.append(tokens_R, torch.zeros(len(tokens_R), device=tokens_R.device))
        return tokens_R

    def rollback(self, count: int) -> None:
        self.tokens.rollback(count)

    def _finish(self, codes: list[int]) -> None:
        for r, code in enumerate(codes):
            if code >= 0:
                ids, logprobs = self.tokens.new_RN[r].tolist(), self.tokens.logprobs_RN[r].tolist()
                self._ended[self.rows[r]] = Hypothesis(ids, logprobs, sum(logprobs), self.rules.reason(code))
        for request, answers in enumerate(self.finished):
            rows = [SequenceId(request, n) for n in range(self._count)]
            if not answers and all(row in self._ended for row in rows):
                answers.extend(self._ended[row] for row in rows)


@dataclass(frozen=True)
class Greedy(Strategy):
    """The most likely token at every step."""

    def search(self, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int) -> Search:
        return _Greedy(rules, tokens, runner, requests)


class _Greedy(RowSearch):
    def next_tokens(self, scores_RV: Tensor) -> Tensor:
        return best_token(scores_RV)


@dataclass(frozen=True)
class Sample(Strategy):
    """A token drawn by its probability; filters (temperature, top-p, ...) shape the distribution.

    The noise is a function of the request's seed, the sequence's number and the step, so a request gets the
    same sequence alone and in any batch. `seed` is one for all requests, or one for each.
    """

    seed: int | tuple[int, ...] = 0
    count: int = 1  # sequences per request

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"num_return_sequences is {self.count}, expected 1 or more")

    @property
    def rows(self) -> int:
        return self.count

    def search(self, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int) -> Search:
        return _Sample(self, rules, tokens, runner, requests)


class _Sample(RowSearch):
    def __init__(
        self, strategy: Sample, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int
    ) -> None:
        super().__init__(rules, tokens, runner, requests, count=strategy.count)
        self._seeds = [seed_of(strategy.seed, request) for request in range(requests)]

    def next_tokens(self, scores_RV: Tensor) -> Tensor:
        vocab, step = scores_RV.shape[-1], self.tokens.count
        noise = [gumbel(vocab, self._seeds[row.request], row.number, step) for row in self.rows]
        return best_token(scores_RV + torch.stack(noise).to(scores_RV))


@dataclass(frozen=True)
class Contrastive(Strategy):
    """Contrastive search (Su 2022): of the `k` most likely tokens, the one with the highest
    (1 - alpha) * probability - alpha * similarity of its hidden state to those of the context.

    Every candidate is run through the model to get its hidden state; the chosen one stays in the cache.
    """

    k: int = 4
    alpha: float = 0.6

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"top_k is {self.k}, expected 1 or more")
        if not 0 <= self.alpha <= 1:
            raise InputError(f"penalty_alpha is {self.alpha}, expected a number from 0 to 1")

    def search(self, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int) -> Search:
        return _Contrastive(self, rules, tokens, runner, requests)


class _Contrastive(RowSearch):
    def __init__(
        self, strategy: Contrastive, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int
    ) -> None:
        super().__init__(rules, tokens, runner, requests)
        self.strategy = strategy
        width = runner.states_RTD.shape[-1]
        self._context_RTD = runner.states_RTD.new_zeros(requests, tokens.capacity, width)
        self._filled = 0  # how many tokens of the context are known

    def next_tokens(self, scores_RV: Tensor) -> Tensor:
        self._add_context(self.runner.states_RTD)
        k = min(self.strategy.k, scores_RV.shape[-1])
        best = scores_RV.softmax(-1).topk(k)
        logits_RKV, states_RKD = self._try_candidates(best.indices)
        alpha = self.strategy.alpha
        value_RK = (1 - alpha) * best.values - alpha * self._similarity(states_RKD)
        value_RK = value_RK.masked_fill(~(best.values > 0), float("-inf"))  # masked out by a filter
        every, chosen = torch.arange(len(value_RK), device=value_RK.device), best_token(value_RK)
        self.runner.reorder(every * k + chosen)
        self.runner.states_RTD = states_RKD[every, chosen, None]
        self.runner.set_next_logits(logits_RKV[every, chosen])
        return best.indices[every, chosen]

    def keep_rows(self, going_R: Tensor) -> None:
        super().keep_rows(going_R)
        self._context_RTD = self._context_RTD[going_R]

    def propose(self, logits_RV: Tensor) -> Tensor:
        raise InputError("speculative decoding does not work with contrastive search: drop penalty_alpha")

    def _add_context(self, states_RTD: Tensor) -> None:
        count = states_RTD.shape[1]
        self._context_RTD[:, self._filled : self._filled + count] = F.normalize(states_RTD, dim=-1)
        self._filled += count

    def _try_candidates(self, tokens_RK: Tensor) -> tuple[Tensor, Tensor]:
        """Run every candidate as a row of its own: the logits after each, and its hidden state."""
        rows, k = tokens_RK.shape
        every = torch.arange(rows, device=tokens_RK.device).repeat_interleave(k)
        self.runner.reorder(every, rows_per_source=k)
        logits = self.runner.step(tokens_RK.reshape(-1, 1))
        return logits.view(rows, k, -1), self.runner.states_RTD[:, -1].view(rows, k, -1)

    def _similarity(self, states_RKD: Tensor) -> Tensor:
        """Cosine similarity of each candidate to the most similar state of its context."""
        context_RTD = self._context_RTD[:, : self._filled]
        similarity_RKT = F.normalize(states_RKD, dim=-1) @ context_RTD.mT
        return similarity_RKT.masked_fill(~self.tokens.real_RT[:, None], -1.0).max(-1).values.float()
