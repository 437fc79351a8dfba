"""Beam search: several hypotheses per request, of which the best go on. Also in groups that avoid each other.

Scores are sums of filtered log-probabilities; what has ended is ranked by its sum over length ** penalty.
Shape suffixes: S requests still going, W beams of a request, R = S * W rows, V vocabulary, K candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError
from .records import Fate, Hypothesis, Node, Row, Step
from .said import Said
from .search import NOTHING_LEFT, Rules, Search, Strategy, gumbel, seed_of
from .speaker import Speaker
from .stops import EndTokens

Early = bool | Literal["never"]
"""When a request is done, once it has as many ended hypotheses as beams: True at once; False when the best
running one would not beat the worst of them at its length; "never" when it could not at any length."""


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


@dataclass
class _Pool:
    """The ended hypotheses of one group of beams, best first, and whether it still takes any."""

    size: int
    early: Early
    penalty: float
    limit: int

    def __post_init__(self) -> None:
        self.ended: list[Hypothesis] = []
        self.open = True

    @property
    def full(self) -> bool:
        return len(self.ended) == self.size

    def take(self, ended: Hypothesis) -> None:
        self.ended = sorted([*self.ended, ended], key=lambda h: h.score, reverse=True)[: self.size]

    def close(self, best: float, length: int) -> None:
        """Closes when the best running sum, at `length` tokens, cannot or need not be waited for."""
        reach = self.limit if self.early == "never" and self.penalty > 0 else length
        hopeless = self.full and best / reach**self.penalty <= self.ended[-1].score
        if best == float("-inf") or hopeless or (self.full and self.early is True):
            self.open = False


@dataclass(frozen=True)
class _Candidates:
    """The likeliest continuations of one group of beams, for every request."""

    scores_SK: Tensor
    rows_SK: Tensor  # the row each continues
    tokens_SK: Tensor
    codes_SK: Tensor  # why it has ended, below zero where it goes on
    kept_SW: Tensor  # which of them go on


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
                _Pool(self.size, strategy.early_stopping, strategy.length_penalty, limit)
                for _ in range(strategy.groups)
            ]
            for limit in limits
        ]
        self.nodes = [-1] * (requests * self.each)  # the node of the tree that each row stands at
        self.node_count = 0

    def turn(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        logp_RV = logits_RV.log_softmax(-1)
        groups = self._choose(self.rules.filtered(logp_RV, self.said))
        rows_R = torch.cat([g.rows_SK.gather(1, g.kept_SW) for g in groups], dim=1).flatten()
        tokens_R = torch.cat([g.tokens_SK.gather(1, g.kept_SW) for g in groups], dim=1).flatten()
        scores_SW = torch.cat([_masked(g).gather(1, g.kept_SW) for g in groups], dim=1)
        logprobs_R = logp_RV[rows_R, tokens_R]
        for g, group in enumerate(groups):
            self._collect(g, group, logp_RV, scores_SW[:, g * self.size])
        nodes = self._tell(groups, logp_RV) if self.rules.record else ()
        rows = [Row(request, n) for request in self.requests for n in range(self.each)]
        step = Step(rows, tokens_R, logprobs_R, nodes=nodes)
        return step, self._go_on(rows_R, tokens_R, logprobs_R, scores_SW)

    def _choose(self, scores_RV: Tensor) -> list[_Candidates]:
        """For each group in turn: its likeliest continuations, and which of them go on."""
        strategy, said, width = self.strategy, self.said, self.each
        count, vocab = len(self.requests), scores_RV.shape[-1]
        totals_SWV = scores_RV.view(count, width, vocab) + self.scores_SW[:, :, None]
        first_S1 = torch.arange(0, count * width, width, device=scores_RV.device)[:, None]
        ends = sum(len(stop.ids) for stop in self.rules.stops if isinstance(stop, EndTokens))
        # So many that enough are left to go on when all the best have ended.
        take = min(max(2, 1 + ends) * self.size, self.size * vocab)
        said_SV = torch.zeros(count, vocab, device=scores_RV.device)  # by earlier groups, in this step
        groups = []
        for g in range(strategy.groups):
            part = totals_SWV[:, g * self.size : (g + 1) * self.size] - strategy.diversity * said_SV[:, None]
            flat = part.flatten(1)
            order = flat if strategy.seed is None else flat + self._noise(flat, g)
            at_SK = order.topk(take).indices
            rows, tokens = first_S1 + g * self.size + at_SK // vocab, at_SK % vocab
            codes = self.rules.ends(said, rows.flatten(), tokens.flatten()).view_as(rows)
            found = _Candidates(flat.gather(1, at_SK), rows, tokens, codes, at_SK)
            kept = _masked(found).topk(self.size).indices
            groups.append(_Candidates(found.scores_SK, rows, tokens, codes, kept))
            said_SV.scatter_add_(1, tokens.gather(1, kept), torch.ones_like(kept, dtype=said_SV.dtype))
        return groups

    def _noise(self, like_SK: Tensor, group: int) -> Tensor:
        assert self.strategy.seed is not None
        each = [
            gumbel(like_SK.shape[1], seed_of(self.strategy.seed, request), "beam", group, self.said.count)
            for request in self.requests
        ]
        return torch.stack(each).to(like_SK)

    def _collect(self, g: int, group: _Candidates, logp_RV: Tensor, best_S: Tensor) -> None:
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

    def _tell(self, groups: list[_Candidates], logp_RV: Tensor) -> tuple[Node, ...]:
        """Every candidate of this step as a node of the tree, and what became of it."""
        told: list[Node] = []
        at_SW: list[list[int]] = [[] for _ in self.requests]
        for group in groups:
            columns = (group.rows_SK, group.tokens_SK, group.scores_SK, group.codes_SK, group.kept_SW)
            for s, (rows, tokens, scores, codes, kept) in enumerate(
                zip(*(x.tolist() for x in columns), strict=True)
            ):
                ids = [len(told) + self.node_count + k for k in range(len(rows))]
                at_SW[s] += [ids[k] for k in kept]
                for k, (row, token) in enumerate(zip(rows, tokens, strict=True)):
                    fate: Fate = "pruned"
                    if codes[k] >= 0 and k < self.size:
                        fate = "finished"
                    elif k in kept and codes[k] < 0:
                        fate = "kept"
                    logprob = float(logp_RV[row, token])
                    told.append(
                        Node(ids[k], self.nodes[row], self.requests[s], self.said.count, token, logprob,
                             scores[k], fate)
                    )  # fmt: skip
        self.node_count += len(told)
        self.nodes = [node for each in at_SW for node in each]
        return tuple(node for node in told if node.score > float("-inf"))

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
            self.nodes = [self.nodes[s * self.each + w] for s in alive for w in range(self.each)]
        self.scores_SW = scores_SW
        self.said.keep(rows_R)
        self.said.add(tokens_R, logprobs_R)
        return rows_R


def _masked(group: _Candidates) -> Tensor:
    """Scores of the candidates that go on; those that ended are at -inf."""
    return group.scores_SK.masked_fill(group.codes_SK >= 0, float("-inf"))
