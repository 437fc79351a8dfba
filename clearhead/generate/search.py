"""What strategies share: stop conditions, the rules of a run, the interface of a search, and a fast top-k.

Shape suffixes: R rows, V vocabulary, C candidates, N their last new tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..nn import generator
from .filters import Filter
from .results import Hypothesis, Reason, Step, TokenBuffer
from .runner import Runner

ALL_MASKED = "every token was masked out by the filters; relax them"

BLOCK = 64  # scores whose maximum is taken at once
FEW = 2**16  # scores for which one plain pass is fast enough


class TopValues(NamedTuple):
    """The largest values of each row, largest first, and their indices."""

    values: Tensor
    indices: Tensor


class Stop:
    """When a sequence has ended. `lookback` is how many of its last tokens `hit` needs to see."""

    reason: ClassVar[Reason]

    @property
    def lookback(self) -> int:
        return 1

    def hit(self, tail_CN: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class EndTokens(Stop):
    ids: tuple[int, ...]
    reason: ClassVar[Reason] = "end"

    def hit(self, tail_CN: Tensor) -> Tensor:
        last_C = tail_CN[:, -1]
        first, *others = (last_C == i for i in self.ids)
        return torch.stack([first, *others]).any(0) if others else first


@dataclass(frozen=True)
class StopStrings(Stop):
    """Ends a sequence once its new text contains one of these; `decode` turns ids into text.

    Each step decodes the last tokens only: as many as the longest string has bytes, plus a few.
    """

    texts: tuple[str, ...]
    decode: Callable[[Sequence[int]], str]
    reason: ClassVar[Reason] = "stop"

    def __post_init__(self) -> None:
        if not self.texts or not all(self.texts):
            raise InputError("a stop string must have at least one character")

    @property
    def lookback(self) -> int:
        # Every token is at least one byte, except special tokens: leave room for a few of these.
        return max(len(text.encode()) for text in self.texts) + 8

    def hit(self, tail_CN: Tensor) -> Tensor:
        tails = [self.decode(ids) for ids in tail_CN.tolist()]
        found = [any(text in tail for text in self.texts) for tail in tails]
        return torch.tensor(found, device=tail_CN.device)


@dataclass(frozen=True)
class Rules:
    """What holds for a whole run, whatever the strategy."""

    filters: Sequence[Filter] = ()
    stops: Sequence[Stop] = ()
    alternatives: int = 0  # how many of the most likely tokens each step reports
    record: bool = False  # beam search: report every hypothesis considered

    def apply_filters(self, scores_RV: Tensor, tokens: TokenBuffer) -> Tensor:
        for rule in self.filters:
            scores_RV = rule(scores_RV, tokens)
        return scores_RV

    def end_codes(self, tokens: TokenBuffer, parents_C: Tensor | slice, tokens_C: Tensor) -> Tensor:
        """Why each candidate has ended: an index for `reason`, below zero if it continues."""
        tail_CN = tokens.tail(parents_C, tokens_C, max((stop.lookback for stop in self.stops), default=1))
        code_C = torch.where(tokens.remaining_R[parents_C] <= 1, len(self.stops), -1)
        for code, stop in reversed(list(enumerate(self.stops))):
            code_C = code_C.masked_fill(stop.hit(tail_CN), code)
        return code_C

    def reason(self, code: int) -> Reason:
        return self.stops[code].reason if code < len(self.stops) else "length"


class Search:
    """A strategy in the middle of a run: it chooses tokens and collects the finished hypotheses."""

    rows_per_source = 1  # how many adjacent rows share the source of one request

    def __init__(self, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int) -> None:
        self.rules, self.tokens, self.runner = rules, tokens, runner
        self.finished: list[list[Hypothesis]] = [[] for _ in range(requests)]

    def propose(self, logits_RV: Tensor) -> Tensor:
        raise InputError("speculative decoding supports greedy decoding and sampling: drop num_beams")

    def rollback(self, count: int) -> None:
        raise NotImplementedError

    def remaining(self) -> int:
        return int(self.tokens.remaining_R.min())

    def choose(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        """One step: what was chosen, and the rows that continue, each with its new token in `tokens`."""
        raise NotImplementedError


class Strategy:
    """How the next token is chosen: a frozen value; `search` starts a run with it."""

    @property
    def rows(self) -> int:
        """How many rows each request needs."""
        return 1

    def search(self, rules: Rules, tokens: TokenBuffer, runner: Runner, requests: int) -> Search:
        raise NotImplementedError


def gumbel(count: int, seed: int, *purpose: str | int) -> Tensor:
    """Gumbel noise: the argmax of log-probabilities plus noise is a sample from them (Gumbel 1954)."""
    noise = torch.empty(count, dtype=torch.float64)
    return -noise.exponential_(generator=generator(seed, "sample", *purpose)).log()


def seed_of(seed: int | tuple[int, ...], request: int) -> int:
    if isinstance(seed, int):
        return seed
    if request >= len(seed):
        raise InputError(f"{len(seed)} seeds were given for more requests; give one seed, or one for each")
    return seed[request]


def fast_topk(scores_RN: Tensor, count: int) -> TopValues:
    """As `topk`, but several times faster on long rows: one pass takes the maximum of each block, and the top
    values of a row can only be in the blocks with the largest maxima.
    """
    length = scores_RN.shape[1]
    if count == 1 and scores_RN.numel() < FEW:
        return TopValues(*scores_RN.max(-1, keepdim=True))
    if length < 16 * BLOCK * count:
        return TopValues(*scores_RN.topk(count))
    rest = length - length % BLOCK
    blocks_RNB = scores_RN[:, :rest].reshape(len(scores_RN), -1, BLOCK)
    blocks_RK = blocks_RNB.amax(-1).topk(count).indices
    inside = torch.arange(BLOCK, device=scores_RN.device)
    at_RC = (blocks_RK[:, :, None] * BLOCK + inside).flatten(1)
    tail = torch.arange(rest, length, device=scores_RN.device).expand(len(at_RC), -1)
    at_RC = torch.cat([at_RC, tail], dim=1)
    found = scores_RN.gather(1, at_RC).topk(count)
    return TopValues(found.values, at_RC.gather(1, found.indices))


def best_token(scores_RV: Tensor) -> Tensor:
    """The token with the highest score in each row."""
    found = fast_topk(scores_RV, 1)
    if float(found.values.amin()) == float("-inf"):
        raise InputError(ALL_MASKED)
    return found.indices[:, 0]


def check_finite(numbers_R: Tensor) -> None:
    """`numbers_R` are sums over all logits of a row: one NaN among them makes the sum NaN."""
    if math.isnan(numbers_R.sum()):
        raise InputError(
            "the model's logits are not finite: its weights are damaged, or overflow in this dtype"
        )


def alternatives(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
    if not count:
        return None
    best = logits_RV.log_softmax(-1).topk(min(count, logits_RV.shape[-1]))
    return best.indices, best.values
