"""LSH attention (Reformer, Kitaev 2020): tokens meet those that a random hash puts into the same place.

    hash      the nearest of a few random directions, anew in each round
    sort      tokens by their bucket; the sorted row is cut into chunks
    attend    each chunk to itself, `before` chunks back and `after` ahead

Work grows with length times chunk times rounds. A pair that meets in no round is not seen; more rounds see
more. Each text is hashed alone, so padding and packing change nothing. Who meets whom depends on all tokens
of a text: under a causal mask later ones get no weight, yet they take up room in the chunks.
Shape suffixes: N texts of one length, H heads, T tokens, R rounds, C chunks, W tokens of a chunk, S keys that
a chunk looks at, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import SpecError
from ..norm import widen
from ..tap import Tap
from ..view import View
from .buckets import Rounds, meet
from .chunks import check_chunks
from .groups import Group, groups
from .kernel import Kernel, Mixing, Need


@dataclass(frozen=True, kw_only=True)
class LSH(Mixing):
    """`buckets` None: about two for each chunk of a text. Several, (16, 32), hash by each and combine."""

    chunk: int = 64
    rounds: int = 4
    before: int = 1
    after: int = 0
    buckets: tuple[int, ...] | None = None
    seed: int = 0
    itself: Literal["seen", "alone"] = "seen"  # "alone": a token sees itself only if it sees nobody else
    repeats: Literal["once", "counted"] = "once"  # a pair that meets in several rounds; "counted": each time,
    # and the chunks of all rounds stand in one ring (as in `transformers`)
    multiple: int | None = None  # fill texts up to a multiple of this; None: of the chunk
    dropout: float = 0.0

    one_text: ClassVar[bool] = True

    def check(self) -> None:
        check_chunks(self)
        if self.rounds < 1 or self.seed < 0:
            raise SpecError(
                f"LSH(rounds={self.rounds}, seed={self.seed}): 1 round or more, a seed of 0 or more"
            )
        if self.buckets is not None and (not self.buckets or any(b < 2 or b % 2 for b in self.buckets)):
            raise SpecError(
                f"LSH.buckets is {self.buckets}, expected even numbers: a direction and its opposite are two"
            )

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _LSH(self)


class _LSH(Kernel):
    supports = frozenset({"causal", "mask", "bias", "pattern"})
    why: ClassVar[dict[Need, str]] = {"uneven": "a new token would stand among the sorted ones of before"}

    def __init__(self, spec: LSH) -> None:
        super().__init__()
        self.spec = spec

    def mix(
        self,
        q_BHQE: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        *,
        view: View,
        bias: Tensor | None,
        scale: float,
        tap: Tap,
    ) -> Tensor:
        heads = q_BHQE.shape[1]
        k_BHKE, v_BHKE = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (k_BHKE, v_BHKE))
        dropout = self.spec.dropout if self.training else 0.0
        mixed = v_BHKE.new_zeros(*q_BHQE.shape[:3], v_BHKE.shape[-1])
        plain = q_BHQE.new_zeros(*q_BHQE.shape[:3], view.keys) if tap.wants("pattern") else None
        for group in groups(view):
            q, k, v = (group.take(x) for x in (q_BHQE, k_BHKE, v_BHKE))
            rounds = meet(q.detach(), k.detach(), self.spec)
            scores = rounds.queries(widen(q)) @ rounds.keys(widen(k)).mT * scale
            if bias is not None:
                scores = scores + rounds.pairs(bias.expand(view.batch, heads, -1, -1), group)
            weights = self._weights(scores, rounds, group, view).type_as(v)
            mixed = group.put(mixed, rounds.home(F.dropout(weights, dropout) @ rounds.keys(v)))
            if plain is not None:
                plain = group.put(plain, rounds.spread(weights, group.slot_NT, view.keys))
        if plain is not None:
            seen = tap("pattern", plain)
            if seen is not plain:
                return F.dropout(seen, dropout) @ v_BHKE
        return mixed

    def _weights(self, scores: Tensor, rounds: Rounds, group: Group, view: View) -> Tensor:
        """(N, H, R, C, W, S): over all rounds together, the weights of a token sum to one."""
        if rounds.times is not None:
            scores = scores - rounds.times.to(scores.dtype).log()
        blocked, lonely_NHRT1 = self._blocked(rounds, group, view)
        lowest = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(blocked, lowest)
        total = scores.logsumexp(dim=-1, keepdim=True)
        # How much each round has to say to a token.
        share_NHRT1 = rounds.home_rounds(total).masked_fill(lonely_NHRT1, lowest).softmax(dim=2)
        weights = (scores - total).exp() * rounds.queries_by_round(share_NHRT1)
        return weights.masked_fill(blocked, 0.0)

    def _blocked(self, rounds: Rounds, group: Group, view: View) -> tuple[Tensor, Tensor]:
        """Which pairs are not seen, and in which rounds a token meets nobody though it does in others."""
        mine, theirs = rounds.q_NHRCW[..., None], rounds.k_NHRCS[..., None, :]
        q_slot, k_slot = (rounds.slots(group.slot_NT, x) for x in (rounds.q_NHRCW, rounds.k_NHRCS))
        length = group.slot_NT.shape[1]
        blocked = (theirs >= length) | (mine >= length)
        asked = view.allows(q_slot[..., None], k_slot[..., None, :], group.row_N)
        blocked = blocked if asked is None else blocked | ~asked
        if self.spec.itself == "seen":
            return blocked, torch.zeros((), dtype=torch.bool, device=blocked.device)
        company = ~(blocked | (mine == theirs)).all(-1, keepdim=True)
        by_round = rounds.home_rounds(company)
        return blocked | ((mine == theirs) & company), ~by_round & by_round.any(2, keepdim=True)
