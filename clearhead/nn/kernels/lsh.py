"""LSH attention (Reformer, Kitaev 2020): tokens attend to those that a random hash puts into the same bucket.

    hash      the nearest of a few random directions, anew in each round
    sort      tokens by their bucket; the sorted row is cut into chunks
    attend    each chunk to itself, `before` chunks back and `after` ahead

Work grows with length times chunk times rounds. A pair that meets in no round is not seen; more rounds see
more. Each text is hashed alone, so padding and packing change nothing. Which tokens share a chunk depends on
all tokens of a text: under a causal mask later ones get no weight, but they take up slots.
Shape suffixes: N texts of one length, H heads, T tokens, R rounds, C chunks, W tokens of a chunk, S keys that
a chunk looks at, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ...errors import SpecError
from ...spec import Amount, BlockLength, Rate, Repeats
from ..layers import apply_dropout
from ..norm import widen
from ..tap import Tap
from ..view import View
from .buckets import Rounds, hash_rounds
from .chunks import check_chunks
from .kernel import AttentionCall, AttentionKernel, Kernel, Need, replaced_output
from .sequences import EqualLength, by_length


@dataclass(frozen=True, kw_only=True)
class LSH(AttentionKernel):
    """`buckets` None: about two per chunk. Several numbers, (16, 32), combine several hashes."""

    chunk: BlockLength = 64
    rounds: Repeats = 4
    before: Amount = 1
    after: Amount = 0
    buckets: tuple[int, ...] | None = None
    seed: Amount = 0
    itself: Literal["seen", "alone"] = "seen"  # always, or only by a token that has no other key (Reformer)
    repeats: Literal["once", "counted"] = "once"  # a pair that meets in several rounds; "counted": each time,
    # and the chunks of all rounds stand in one ring (as in `transformers`)
    multiple: int | None = None  # fill texts up to a multiple of this; None: of the chunk
    dropout: Rate = 0.0

    one_text: ClassVar[bool] = True

    def check(self) -> None:
        check_chunks("LSH", self.chunk, self.multiple)
        if self.buckets is not None and (not self.buckets or any(b < 2 or b % 2 for b in self.buckets)):
            raise SpecError(
                f"LSH.buckets is {self.buckets}, expected even numbers: a direction and its opposite are two"
            )
        if self.buckets is not None and prod(self.buckets) > 2**16:
            raise SpecError(f"LSH.buckets is {self.buckets}, expected at most 65,536 in all")

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _LSH(self)


class _LSH(Kernel):
    supports = frozenset({"causal", "mask", "bias", "pattern"})
    looks_ahead = True
    reasons: ClassVar[dict[Need, str]] = {"uneven": "a new token would be sorted among the earlier ones"}

    def __init__(self, spec: LSH) -> None:
        super().__init__()
        self.spec = spec

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        call = call.repeat_kv()
        q_BHQE, k_BHKE, v_BHKE, view, bias, scale = (
            call.q_BHQE, call.k_BHKE, call.v_BHKE, call.view, call.bias, call.scale,
        )  # fmt: skip
        heads, dropout = q_BHQE.shape[1], self.spec.dropout if self.training else 0.0
        mixed = v_BHKE.new_zeros(*q_BHQE.shape[:3], v_BHKE.shape[-1])
        plain = q_BHQE.new_zeros(*q_BHQE.shape[:3], view.keys) if tap.wants("pattern") else None
        for group in by_length(view):
            q, k, v = (group.take(x) for x in (q_BHQE, k_BHKE, v_BHKE))
            rounds = hash_rounds(q.detach(), k.detach(), self.spec)
            scores, own = rounds.queries(widen(q)) @ rounds.keys(widen(k)).mT * scale, None
            if self.spec.itself == "seen":
                own = (widen(q) * widen(k)).sum(-1, keepdim=True) * scale
            if bias is not None:
                bias_BHQK = bias.expand(view.batch, heads, -1, -1)
                scores = scores + rounds.pairs(bias_BHQK, group)
                own = None if own is None else own + group.diagonal(bias_BHQK)
            weights, own = (w.type_as(v) for w in self._weights(scores, own, rounds, group, view))
            dropped, own_dropped = (apply_dropout(w, dropout) for w in (weights, own))
            mix_NHTE = rounds.unsort(dropped @ rounds.keys(v)) + own_dropped * v
            mixed = group.put(mixed, mix_NHTE)
            if plain is not None:
                seen = rounds.dense(weights, group.slot_NT, view.keys)
                mine = group.slot_NT[:, None, :, None].expand(-1, heads, -1, -1)
                plain = group.put(plain, seen.scatter_add(-1, mine, own))
        answer = None if plain is None else replaced_output(tap, plain, v_BHKE, dropout)
        return mixed if answer is None else answer

    def _weights(
        self, scores: Tensor, own_NHT1: Tensor | None, rounds: Rounds, group: EqualLength, view: View
    ) -> tuple[Tensor, Tensor]:
        """Weights (N, H, R, C, W, S) of the pairs in a chunk, and (N, H, T, 1) of each token with itself."""
        if rounds.times is not None:
            scores = scores - rounds.times.to(scores.dtype).log()
        blocked, lonely_NHRT1 = self._blocked(rounds, group, view)
        lowest = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(blocked, lowest)
        total = scores.logsumexp(dim=-1, keepdim=True)
        # Rounds are combined by a softmax over their totals, and the token itself if it counts separately.
        total_NHRT1 = rounds.unsort_rounds(total).masked_fill(lonely_NHRT1, lowest)
        share = total_NHRT1.softmax(dim=2)
        own = torch.zeros_like(total_NHRT1[:, :, 0])
        if own_NHT1 is not None:
            slot_NHT = group.slot_NT[:, None]
            allowed = view.allows(slot_NHT, slot_NHT, group.row_N)
            own_NHT1 = own_NHT1 if allowed is None else own_NHT1.masked_fill(~allowed[..., None], lowest)
            share, own = (
                torch.cat([total_NHRT1, own_NHT1[:, :, None]], dim=2).softmax(dim=2).tensor_split([-1], dim=2)
            )
            own = own[:, :, 0] if allowed is None else own[:, :, 0].masked_fill(~allowed[..., None], 0.0)
        weights = (scores - total).exp() * rounds.queries_by_round(share)
        return weights.masked_fill(blocked, 0.0), own

    def _blocked(self, rounds: Rounds, group: EqualLength, view: View) -> tuple[Tensor, Tensor]:
        """The pairs without weight, and the rounds in which a token has no key but has some in others."""
        mine, theirs = rounds.q_NHRCW[..., None], rounds.k_NHRCS[..., None, :]
        q_slot, k_slot = (rounds.slots(group.slot_NT, x) for x in (rounds.q_NHRCW, rounds.k_NHRCS))
        length = group.slot_NT.shape[1]
        blocked = (theirs >= length) | (mine >= length)
        allowed = view.allows(q_slot[..., None], k_slot[..., None, :], group.row_N)
        blocked = blocked if allowed is None else blocked | ~allowed
        if self.spec.itself == "seen":  # counted once, separately from the rounds
            return blocked | (mine == theirs), torch.zeros((), dtype=torch.bool, device=blocked.device)
        company = ~(blocked | (mine == theirs)).all(-1, keepdim=True)
        by_round = rounds.unsort_rounds(company)
        return blocked | ((mine == theirs) & company), ~by_round & by_round.any(2, keepdim=True)
