"""What strategies share: the rules of a run, the face of a search, and a few lines of arithmetic.

Shape suffixes: R rows, V vocabulary, C candidates, N their last new tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..nn.init import generator
from .filters import Filter
from .records import Hypothesis, Reason, Step
from .said import Said
from .speaker import Speaker
from .stops import Stop

NOTHING_LEFT = "the filters leave no token to say; loosen them"


BLOCK = 64  # numbers that are compared at once
FEW = 2**16  # numbers that one pass is quick enough for


class Largest(NamedTuple):
    """The best numbers of each row, best first, and where they stand."""

    values: Tensor
    indices: Tensor


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

    def ends(self, said: Said, parents_C: Tensor | slice, tokens_C: Tensor) -> Tensor:
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

    def __init__(self, rules: Rules, said: Said, voice: Speaker, requests: int) -> None:
        self.rules, self.said, self.voice = rules, said, voice
        self.finished: list[list[Hypothesis]] = [[] for _ in range(requests)]

    def guess(self, logits_RV: Tensor) -> Tensor:
        raise InputError("a draft cannot guess what this strategy says; use the likeliest token or a draw")

    def take_back(self, count: int) -> None:
        raise NotImplementedError

    def left(self) -> int:
        return int(self.said.left_R.min())

    def turn(self, logits_RV: Tensor) -> tuple[Step, Tensor]:
        """One turn: what was decided, and the rows that go on, each with its new token in `said`."""
        raise NotImplementedError


class Strategy:
    """How the next token is chosen: a frozen value; `search` begins a run with it."""

    @property
    def rows(self) -> int:
        """How many rows each request needs."""
        return 1

    def search(self, rules: Rules, said: Said, voice: Speaker, requests: int) -> Search:
        raise NotImplementedError


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


def largest(scores_RN: Tensor, count: int) -> Largest:
    """As `topk`, several times faster on long rows: one quick pass finds the largest number of each block,
    and the best numbers of a row can only be in the blocks with the largest.
    """
    length = scores_RN.shape[1]
    if count == 1 and scores_RN.numel() < FEW:
        return Largest(*scores_RN.max(-1, keepdim=True))
    if length < 16 * BLOCK * count:
        return Largest(*scores_RN.topk(count))
    rest = length - length % BLOCK
    blocks_RNB = scores_RN[:, :rest].reshape(len(scores_RN), -1, BLOCK)
    blocks_RK = blocks_RNB.amax(-1).topk(count).indices
    inside = torch.arange(BLOCK, device=scores_RN.device)
    at_RC = (blocks_RK[:, :, None] * BLOCK + inside).flatten(1)
    tail = torch.arange(rest, length, device=scores_RN.device).expand(len(at_RC), -1)
    at_RC = torch.cat([at_RC, tail], dim=1)
    found = scores_RN.gather(1, at_RC).topk(count)
    return Largest(found.values, at_RC.gather(1, found.indices))


def likeliest(scores_RV: Tensor) -> Tensor:
    found = largest(scores_RV, 1)
    if float(found.values.amin()) == float("-inf"):
        raise InputError(NOTHING_LEFT)
    return found.indices[:, 0]


def check_finite(numbers_R: Tensor) -> None:
    """Of sums over all tokens: a logit that is no number makes its row's sum so."""
    if math.isnan(numbers_R.sum()):
        raise InputError(
            "the model's logits are not finite: its weights are damaged, or overflow in this dtype"
        )


def alternatives(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
    if not count:
        return None
    best = logits_RV.log_softmax(-1).topk(min(count, logits_RV.shape[-1]))
    return best.indices, best.values
