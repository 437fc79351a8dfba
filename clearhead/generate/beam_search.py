"""Beam search: several hypotheses per request, of which the best continue; optionally in diverse groups.

Scores are sums of filtered log-probabilities; finished hypotheses are ranked by sum / length ** penalty.
Shape suffixes: S requests still running, W beams of a request, N beams of a group, R = S * W rows,
V vocabulary, K candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError
from .filters import BLOCKED
from .results import Fate, Hypothesis, Node, SequenceId, Step, TokenBuffer
from .runner import Runner
from .search import (
    ALL_MASKED,
    EndTokens,
    Rules,
    Search,
    Strategy,
    check_finite,
    fast_topk,
    gumbel,
    seed_of,
)

EarlyStopping = bool | Literal["never"]
"""When a request with as many finished hypotheses as beams is done. True: at once; False: when the best
running one would not beat the worst of them at its present length; "never": when it could at no length."""


@dataclass(frozen=True)
class Beam(Strategy):
    """`width` beams, of which the best `count` hypotheses are returned."""

    width: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    count: int = 1
    groups: int = 1
    diversity: float = 0.0  # penalty of a token for each earlier group that chose it in this step
    seed: int | tuple[int, ...] | None = None  # None: the best candidates; otherwise they are sampled

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InputError(f"num_beams is {self.width}, expected 1 or more")
        if not 1 <= self.count <= self.width:
            raise InputError(
                f"num_return_sequences is {self.count} with {self.width} beams, expected 1 to {self.width}"
            )
        if self.groups < 1 or self.width % self.groups:
            raise InputError(f"{self.width} beams cannot be split into {self.groups} equal groups")
        if self.early_stopping not in (True, False, "never"):
            raise InputError(f"early_stopping is {self.early_stopping!r}, expected True, False or 'never'")

    @property
    def rows(self) -> int:
        return self.width

    def search(self, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int) -> Search:
        return _Beams(self, rules, tokens, runner, requests)


class _Beams(Search):
    def __init__(
        self, strategy: Beam, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int
    ) -> None:
        super().__init__(rules, tokens, runner, requests)
        self.strategy = strategy
        self.width = self.rows_per_source = strategy.width
        self.size = strategy.width // strategy.groups  # beams of a group
        self.requests = list(range(requests))
        # Only the first beam of a group counts at first: all of them hold the same prompt.
        self.scores_SW = torch.full((requests, self.width), BLOCKED, device=tokens.ids_RT.device)
        self.scores_SW[:, :: self.size] = 0.0
        limits = tokens.remaining_R[:: self.width].tolist()
        self.pools = [
            [
                HypothesisPool(self.size, strategy.early_stopping, strategy.length_penalty, limit)
                for _ in range(strategy.groups)
            ]
            for limit in limits
        ]
        self.tree = BeamTree(requests * self.width) if rules.record else None

    def choose(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        # In place: for 64 rows of 37,000 tokens allocating a tensor costs more than filling it.
        logp_RV = torch.log_softmax(logits_RV, -1, out=logits_RV)
        check_finite(logp_RV[:, 0])
        groups = self._candidates(self.rules.apply_filters(logp_RV, self.tokens))
        rows_R = torch.cat([g.kept(g.rows_SK) for g in groups], dim=1).flatten()
        tokens_R = torch.cat([g.kept(g.tokens_SK) for g in groups], dim=1).flatten()
        scores_SW = torch.cat([g.running_SN for g in groups], dim=1)
        logprobs_R = logp_RV[rows_R, tokens_R]
        for g, group in enumerate(groups):
            self._collect(g, group, logp_RV, scores_SW[:, g * self.size])
        nodes = self.tree.grow(groups, self.requests, self.tokens.count, logp_RV) if self.tree else ()
        rows = [SequenceId(request, n) for request in self.requests for n in range(self.width)]
        step = Step(rows, tokens_R, logprobs_R, nodes=nodes)
        return step, self._continue(rows_R, tokens_R, logprobs_R, scores_SW)

    def _candidates(self, scores_RV: Tensor) -> list[Candidates]:
        """For each group in turn: its most likely continuations, and which of them continue."""
        strategy, width = self.strategy, self.width
        count, vocab = len(self.requests), scores_RV.shape[-1]
        scores_SWV = scores_RV.view(count, width, vocab)
        first_S1 = torch.arange(0, count * width, width, device=scores_RV.device)[:, None]
        ends = sum(len(stop.ids) for stop in self.rules.stops if isinstance(stop, EndTokens))
        # Enough that `size` candidates remain even if all the best ones have ended.
        take = min(max(2, 1 + ends) * self.size, self.size * vocab)
        chosen_SV: Tensor | None = None  # how often earlier groups chose each token in this step
        groups = []
        for g in range(strategy.groups):
            own = slice(g * self.size, (g + 1) * self.size)
            part_SWV, sums_SW = scores_SWV[:, own], self.scores_SW[:, own]
            if chosen_SV is not None:
                part_SWV = part_SWV - strategy.diversity * chosen_SV[:, None]
            order = part_SWV if strategy.seed is None else part_SWV + self._noise(part_SWV, g)
            at_SK = _continuations(order, sums_SW, take)
            rows, tokens = first_S1 + g * self.size + at_SK // vocab, at_SK % vocab
            codes = self.rules.end_codes(self.tokens, rows.flatten(), tokens.flatten()).view_as(rows)
            scores = part_SWV.flatten(1).gather(1, at_SK) + sums_SW.gather(1, at_SK // vocab)
            kept = continuing(scores, codes).topk(self.size).indices
            groups.append(Candidates(scores, rows, tokens, codes, kept))
            if strategy.groups > 1:
                chosen_SV = scores_RV.new_zeros(count, vocab) if chosen_SV is None else chosen_SV
                ones = torch.ones_like(kept, dtype=chosen_SV.dtype)
                chosen_SV.scatter_add_(1, tokens.gather(1, kept), ones)
        return groups

    def _noise(self, like_SWV: Tensor, group: int) -> Tensor:
        assert self.strategy.seed is not None
        count = like_SWV.shape[1] * like_SWV.shape[2]
        each = [
            gumbel(count, seed_of(self.strategy.seed, request), "beam", group, self.tokens.count)
            for request in self.requests
        ]
        return torch.stack(each).to(like_SWV).view_as(like_SWV)

    def _collect(self, g: int, group: Candidates, logp_RV: Tensor, best_S: Tensor) -> None:
        """Put finished hypotheses among the best into the pools, and close the pools that need no more."""
        length = self.tokens.count + 1
        scores, codes = group.scores_SK.tolist(), group.codes_SK.tolist()
        for s, best in enumerate(best_S.tolist()):
            pool = self.pools[s][g]
            for k in range(self.size):
                if pool.open and codes[s][k] >= 0 and scores[s][k] > float("-inf"):
                    row, token = int(group.rows_SK[s, k]), int(group.tokens_SK[s, k])
                    ids = [*self.tokens.new_RN[row].tolist(), token]
                    logprobs = [*self.tokens.logprobs_RN[row].tolist(), float(logp_RV[row, token])]
                    score = scores[s][k] / length**pool.penalty
                    pool.add(Hypothesis(ids, logprobs, score, self.rules.reason(codes[s][k])))
            pool.close(best, length)
            if not pool.open and not pool.ended:
                raise InputError(ALL_MASKED)

    def _continue(self, rows_R: Tensor, tokens_R: Tensor, logprobs_R: Tensor, scores_SW: Tensor) -> Tensor:
        """Drop requests whose pools are all closed; the rows of the others continue."""
        alive = [s for s, pools in enumerate(self.pools) if any(pool.open for pool in pools)]
        for s in set(range(len(self.pools))) - set(alive):
            ended = sorted((h for pool in self.pools[s] for h in pool.ended), key=lambda h: -h.score)
            self.finished[self.requests[s]].extend(ended[: self.strategy.count])
        if len(alive) < len(self.requests):
            keep = torch.tensor(alive, dtype=torch.long, device=rows_R.device)
            rows_R, tokens_R, logprobs_R = (
                x.view(-1, self.width)[keep].flatten() for x in (rows_R, tokens_R, logprobs_R)
            )
            scores_SW = scores_SW[keep]
            self.requests, self.pools = [self.requests[s] for s in alive], [self.pools[s] for s in alive]
            if self.tree:
                self.tree.reorder([s * self.width + w for s in alive for w in range(self.width)])
        self.scores_SW = scores_SW
        self.tokens.reorder(rows_R)
        self.tokens.append(tokens_R, logprobs_R)
        return rows_R


def _continuations(scores_SWV: Tensor, sums_SW: Tensor, take: int) -> Tensor:
    """Indices of the best continuations of each request, into its beams laid side by side; best first.

    The best of each beam are found first: adding a beam's sum does not change the order of its tokens.
    """
    requests, _, vocab = scores_SWV.shape
    each = min(take, vocab)
    found = fast_topk(scores_SWV.flatten(0, 1), each)
    totals_SC = found.values.view(requests, -1) + sums_SW.repeat_interleave(each, dim=1)
    best_SK = totals_SC.topk(take).indices
    return best_SK // each * vocab + found.indices.view(requests, -1).gather(1, best_SK)


@dataclass
class HypothesisPool:
    """The finished hypotheses of one group of beams, best first, until no better one can come."""

    size: int
    early: EarlyStopping
    penalty: float
    limit: int
    ended: list[Hypothesis] = field(default_factory=list)
    open: bool = True

    @property
    def full(self) -> bool:
        return len(self.ended) == self.size

    def add(self, ended: Hypothesis) -> None:
        self.ended = sorted([*self.ended, ended], key=lambda h: h.score, reverse=True)[: self.size]

    def close(self, best: float, length: int) -> None:
        """Close when the best running sum, at `length` tokens, cannot or need not beat what is here."""
        reachable = self.limit if self.early == "never" and self.penalty > 0 else length
        hopeless = self.full and best / reachable**self.penalty <= self.ended[-1].score
        if best == float("-inf") or hopeless or (self.full and self.early is True):
            self.open = False


@dataclass(frozen=True)
class Candidates:
    """The most likely continuations of one group of beams, for every request."""

    scores_SK: Tensor
    rows_SK: Tensor  # the row each continues
    tokens_SK: Tensor
    codes_SK: Tensor  # why it has ended, below zero if it continues
    kept_SN: Tensor  # which of them continue

    @property
    def running_SN(self) -> Tensor:
        """Scores of those that continue; -inf where too few are left."""
        return continuing(self.scores_SK, self.codes_SK).gather(1, self.kept_SN)

    def kept(self, x_SK: Tensor) -> Tensor:
        return x_SK.gather(1, self.kept_SN)


def continuing(scores_SK: Tensor, codes_SK: Tensor) -> Tensor:
    """Scores of the candidates that continue; those that ended are at -inf."""
    return scores_SK.masked_fill(codes_SK >= 0, BLOCKED)


class BeamTree:
    """Every hypothesis that was considered, with a number of its own."""

    def __init__(self, rows: int) -> None:
        self._at_R = [-1] * rows  # the node of each row
        self._count = 0

    def grow(
        self, groups: Sequence[Candidates], requests: Sequence[int], step: int, logp_RV: Tensor
    ) -> tuple[Node, ...]:
        """The nodes of one step, and what became of them; rows then belong to those that were kept."""
        nodes: list[Node] = []
        at: list[list[int]] = [[] for _ in requests]
        for group in groups:
            columns = (group.rows_SK, group.tokens_SK, group.scores_SK, group.codes_SK, group.kept_SN)
            for s, found in enumerate(zip(*(x.tolist() for x in columns), strict=True)):
                rows, tokens, scores, codes, kept = found
                first = self._count + len(nodes)
                at[s] += [first + k for k in kept]
                for k, (row, token) in enumerate(zip(rows, tokens, strict=True)):
                    ended, best = codes[k] >= 0, k < len(kept)
                    fate: Fate = (
                        "finished" if ended and best else "kept" if k in kept and not ended else "pruned"
                    )
                    logprob = float(logp_RV[row, token])
                    parent = self._at_R[row]
                    nodes.append(Node(first + k, parent, requests[s], step, token, logprob, scores[k], fate))
        self._count += len(nodes)
        self._at_R = [node for each in at for node in each]
        return tuple(node for node in nodes if node.score > BLOCKED)

    def reorder(self, rows: Sequence[int]) -> None:
        self._at_R = [self._at_R[row] for row in rows]
