"""Beam search: several hypotheses per request, of which the best go on. Also in groups that avoid each other.

Scores are sums of filtered log-probabilities; what has ended is ranked by its sum over length ** penalty.
Shape suffixes: S requests still going, W beams of a request, R = S * W rows, V vocabulary, K candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .candidates import Candidates, Tree, going
from .pool import Early, Pool
from .records import Hypothesis, Row, Step
from .said import Said
from .search import NOTHING_LEFT, Rules, Search, Strategy, check_finite, gumbel, largest, seed_of
from .speaker import Speaker
from .stops import EndTokens


@dataclass(frozen=True)
class Beam(Strategy):
    """`width` beams, of which `count` answers are given, best first."""

    width: int
    length_penalty: float = 1.0
    early_stopping: Early = False
    count: int = 1
    groups: int = 1
    diversity: float = 0.0  # what a token loses for every earlier group that said it in the same step
    seed: int | tuple[int, ...] | None = None  # None: the best candidates; else they are drawn

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InputError(f"num_beams is {self.width}, expected 1 or more")
        if not 1 <= self.count <= self.width:
            raise InputError(f"{self.count} answers from {self.width} beams; ask for 1 to {self.width}")
        if self.groups < 1 or self.width % self.groups:
            raise InputError(f"{self.width} beams cannot be split into {self.groups} equal groups")
        if self.early_stopping not in (True, False, "never"):
            raise InputError(f"early_stopping is {self.early_stopping!r}, expected True, False or 'never'")

    @property
    def rows(self) -> int:
        return self.width

    def search(self, rules: Rules, said: Said, voice: Speaker, requests: int) -> Search:
        return _Beams(self, rules, said, voice, requests)


class _Beams(Search):
    def __init__(self, strategy: Beam, rules: Rules, said: Said, voice: Speaker, requests: int) -> None:
        super().__init__(rules, said, voice, requests)
        self.strategy, self.each, self.size = strategy, strategy.width, strategy.width // strategy.groups
        self.requests = list(range(requests))
        # Only the first beam of a group counts at first: they all are the same beginning.
        self.scores_SW = torch.full((requests, self.each), float("-inf"), device=said.ids_RT.device)
        self.scores_SW[:, :: self.size] = 0.0
        limits = said.left_R[:: self.each].tolist()
        self.pools = [
            [
                Pool(self.size, strategy.early_stopping, strategy.length_penalty, limit)
                for _ in range(strategy.groups)
            ]
            for limit in limits
        ]
        self.tree = Tree(requests * self.each) if rules.record else None

    def turn(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        # In place: for 64 rows of 37,000 words a fresh tensor costs more than the numbers that go into it.
        logp_RV = torch.log_softmax(logits_RV, -1, out=logits_RV)
        check_finite(logp_RV[:, 0])
        groups = self._choose(self.rules.filtered(logp_RV, self.said))
        rows_R = torch.cat([g.kept(g.rows_SK) for g in groups], dim=1).flatten()
        tokens_R = torch.cat([g.kept(g.tokens_SK) for g in groups], dim=1).flatten()
        scores_SW = torch.cat([g.running_SN for g in groups], dim=1)
        logprobs_R = logp_RV[rows_R, tokens_R]
        for g, group in enumerate(groups):
            self._collect(g, group, logp_RV, scores_SW[:, g * self.size])
        nodes = self.tree.grow(groups, self.requests, self.said.count, logp_RV) if self.tree else ()
        rows = [Row(request, n) for request in self.requests for n in range(self.each)]
        step = Step(rows, tokens_R, logprobs_R, nodes=nodes)
        return step, self._go_on(rows_R, tokens_R, logprobs_R, scores_SW)

    def _choose(self, scores_RV: Tensor) -> list[Candidates]:
        """For each group in turn: its likeliest continuations, and which of them go on."""
        strategy, said, width = self.strategy, self.said, self.each
        count, vocab = len(self.requests), scores_RV.shape[-1]
        scores_SWV = scores_RV.view(count, width, vocab)
        first_S1 = torch.arange(0, count * width, width, device=scores_RV.device)[:, None]
        ends = sum(len(stop.ids) for stop in self.rules.stops if isinstance(stop, EndTokens))
        # So many that enough are left to go on when all the best have ended.
        take = min(max(2, 1 + ends) * self.size, self.size * vocab)
        said_SV: Tensor | None = None  # how often by earlier groups, in this step
        groups = []
        for g in range(strategy.groups):
            own = slice(g * self.size, (g + 1) * self.size)
            part_SWV, sums_SW = scores_SWV[:, own], self.scores_SW[:, own]
            if said_SV is not None:
                part_SWV = part_SWV - strategy.diversity * said_SV[:, None]
            order = part_SWV if strategy.seed is None else part_SWV + self._noise(part_SWV, g)
            at_SK = _continuations(order, sums_SW, take)
            rows, tokens = first_S1 + g * self.size + at_SK // vocab, at_SK % vocab
            codes = self.rules.ends(said, rows.flatten(), tokens.flatten()).view_as(rows)
            scores = part_SWV.flatten(1).gather(1, at_SK) + sums_SW.gather(1, at_SK // vocab)
            kept = going(scores, codes).topk(self.size).indices
            groups.append(Candidates(scores, rows, tokens, codes, kept))
            if strategy.groups > 1:
                said_SV = scores_RV.new_zeros(count, vocab) if said_SV is None else said_SV
                said_SV.scatter_add_(1, tokens.gather(1, kept), torch.ones_like(kept, dtype=said_SV.dtype))
        return groups

    def _noise(self, like_SWV: Tensor, group: int) -> Tensor:
        assert self.strategy.seed is not None
        count = like_SWV.shape[1] * like_SWV.shape[2]
        each = [
            gumbel(count, seed_of(self.strategy.seed, request), "beam", group, self.said.count)
            for request in self.requests
        ]
        return torch.stack(each).to(like_SWV).view_as(like_SWV)

    def _collect(self, g: int, group: Candidates, logp_RV: Tensor, best_S: Tensor) -> None:
        """Put what has ended among the best into the pools, and close those that need no more."""
        length = self.said.count + 1
        scores, codes = group.scores_SK.tolist(), group.codes_SK.tolist()
        for s, best in enumerate(best_S.tolist()):
            pool = self.pools[s][g]
            for k in range(self.size):
                if pool.open and codes[s][k] >= 0 and scores[s][k] > float("-inf"):
                    row, token = int(group.rows_SK[s, k]), int(group.tokens_SK[s, k])
                    ids = [*self.said.new_RN[row].tolist(), token]
                    logprobs = [*self.said.logprobs_RN[row].tolist(), float(logp_RV[row, token])]
                    score = scores[s][k] / length**pool.penalty
                    pool.take(Hypothesis(ids, logprobs, score, self.rules.reason(codes[s][k])))
            pool.close(best, length)
            if not pool.open and not pool.ended:
                raise InputError(NOTHING_LEFT)

    def _go_on(self, rows_R: Tensor, tokens_R: Tensor, logprobs_R: Tensor, scores_SW: Tensor) -> Tensor:
        """Leave out requests whose pools are all closed; the rows of the others go on."""
        alive = [s for s, pools in enumerate(self.pools) if any(pool.open for pool in pools)]
        for s in set(range(len(self.pools))) - set(alive):
            ended = sorted((h for pool in self.pools[s] for h in pool.ended), key=lambda h: -h.score)
            self.finished[self.requests[s]].extend(ended[: self.strategy.count])
        if len(alive) < len(self.requests):
            keep = torch.tensor(alive, dtype=torch.long, device=rows_R.device)
            rows_R, tokens_R, logprobs_R = (
                x.view(-1, self.each)[keep].flatten() for x in (rows_R, tokens_R, logprobs_R)
            )
            scores_SW = scores_SW[keep]
            self.requests, self.pools = [self.requests[s] for s in alive], [self.pools[s] for s in alive]
            if self.tree:
                self.tree.keep([s * self.each + w for s in alive for w in range(self.each)])
        self.scores_SW = scores_SW
        self.said.keep(rows_R)
        self.said.add(tokens_R, logprobs_R)
        return rows_R


def _continuations(scores_SWV: Tensor, sums_SW: Tensor, take: int) -> Tensor:
    """Where in all beams of a request, laid side by side, its best continuations stand, best first.

    The best of each beam are found first: a beam's sum moves all its tokens alike.
    """
    requests, _, vocab = scores_SWV.shape
    each = min(take, vocab)
    found = largest(scores_SWV.flatten(0, 1), each)
    totals_SC = found.values.view(requests, -1) + sums_SW.repeat_interleave(each, dim=1)
    best_SK = totals_SC.topk(take).indices
    return best_SK // each * vocab + found.indices.view(requests, -1).gather(1, best_SK)
