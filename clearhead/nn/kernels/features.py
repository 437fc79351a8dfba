"""Attention by feature maps: scores are products of features, so all keys and values can be summed at once.

    out_i = f(q_i) . sum_j f(k_j) v_j'  /  f(q_i) . sum_j f(k_j)

One sum serves all queries; in a decoder it runs along with the text, and is all that a cache must keep.
Causal texts are scanned in chunks: within a chunk all pairs, before it the sum; memory is linear.
Shape suffixes: R texts, H heads, T tokens, Q queries, K keys, C tokens of a chunk, F features, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import UnsupportedError
from ..cache import State
from ..cost import AttentionShape, PartCost, matmul_cost
from ..norm import widen
from .kernel import AttentionCall
from .per_sequence import PerSequenceKernel, RowInfo, kept_per_row

CHUNK = 128  # tokens; larger ones make fewer steps and more pairs


@dataclass(frozen=True, eq=False)
class Features:
    """Positive features times exp(log). The scale is kept as a logarithm so that it cannot overflow."""

    x_RHTF: Tensor
    log_RHT1: Tensor  # has no gradient: the scale cancels out

    def masked(self, real_RT: Tensor) -> Features:
        """The features with those of padding set to zero."""
        gone = ~real_RT[:, None, :, None]
        lowest = torch.finfo(self.log_RHT1.dtype).min / 4
        return Features(self.x_RHTF.masked_fill(gone, 0.0), self.log_RHT1.masked_fill(gone, lowest))

    def scaled(self, to: Tensor) -> Tensor:
        return self.x_RHTF * (self.log_RHT1 - to).exp()

    def chunks(self) -> list[Features]:
        pairs = zip(torch.split(self.x_RHTF, CHUNK, 2), torch.split(self.log_RHT1, CHUNK, 2), strict=True)
        return [Features(x, log) for x, log in pairs]


def sums_cost(at: AttentionShape, features: int) -> PartCost:
    """The cost of the sums and of the outputs; that of the features is counted by the kernel.

    In a decoder the first sum is empty and the last is not used, so neither has a gradient.
    """
    rows, value = at.batch * at.heads, at.value_dim + 1
    if not at.causal:
        work = matmul_cost(rows, features, at.keys, value) + matmul_cost(rows, at.queries, features, value)
        numbers = at.keys * (value + 1) + at.queries * (value + 1) + features * value
        return work + kept_per_row(at, numbers + at.queries * at.value_dim)
    sizes = [min(CHUNK, at.keys - start) for start in range(0, at.keys, CHUNK)]
    squares, sum_ = sum(size**2 for size in sizes), matmul_cost(rows, at.keys, features, value)
    work = matmul_cost(rows, squares, features, 1) + matmul_cost(rows, squares, value, 1) + sum_ + sum_
    unasked = 2 * rows * features * value * (sizes[0] + 2 * sizes[-1])
    numbers = 2 * squares + 2 * at.keys * value + len(sizes) * features * value + 3 * at.keys
    numbers += (at.keys - sizes[-1]) * features + at.keys * at.value_dim
    return work + PartCost(backward=-unasked) + kept_per_row(at, numbers)


def first_chunk(at: AttentionShape) -> int:
    return min(CHUNK, at.keys)


class FeatureKernel(PerSequenceKernel):
    """Base of linear attention and Performer, which differ in their feature maps."""

    supports = frozenset({"causal", "padding", "documents", "uneven", "pattern"})
    cache_kind = "state"

    def features(self, q_RHQE: Tensor, k_RHKE: Tensor, scale: float) -> tuple[Tensor, Features]:
        """Features of queries and of keys. A common factor of the features of one query cancels out."""
        raise NotImplementedError

    def attend_rows(
        self, q_RHQE: Tensor, k_RHKE: Tensor, v_RHKE: Tensor, *, info: RowInfo, scale: float
    ) -> Tensor:
        (q, k), v = self.features(q_RHQE, k_RHKE, scale), _with_one(v_RHKE)
        if info.real_RK is not None:
            k = k.masked(info.real_RK)
        if info.causal:
            return _normalise(_scan(q, k, v, _initial_state(k, v))[0])
        top = k.log_RHT1.amax(2, keepdim=True)
        return _normalise(q @ (k.scaled(top).mT @ v))

    def attend_step(self, call: AttentionCall, state: State | None) -> tuple[Tensor, State]:
        """The output for new tokens after all that the state has seen, and the state with them in it."""
        view = call.view
        if view.outline.packed:
            raise UnsupportedError(
                "a running sum is of one text: packed texts cannot be decoded with a cache"
            )
        call = call.repeat_kv()
        k_BHTE, v_BHTE = widen(call.k_BHKE), widen(call.v_BHKE)
        (q, k), v = self.features(widen(call.q_BHQE), k_BHTE, call.scale), _with_one(v_BHTE)
        number_BK = view.mask.segments()
        if number_BK is not None:
            k = k.masked(number_BK[:, view.start :] >= 0)
        out, state = _scan(q, k, v, _initial_state(k, v) if state is None else state)
        return _normalise(out).type_as(call.q_BHQE), state


def _scan(q_RHTF: Tensor, k: Features, v_RHTE: Tensor, state: State) -> tuple[Tensor, State]:
    """Causal attention chunk by chunk, with the sum over all earlier chunks.

    The state is the sum of features times values, and the logarithm of its scale (the largest so far).
    """
    total, top = state
    outputs = []
    queries, values = torch.split(q_RHTF, CHUNK, 2), torch.split(v_RHTE, CHUNK, 2)
    for q, keys, v in zip(queries, k.chunks(), values, strict=True):
        highest = torch.maximum(keys.log_RHT1.cummax(2).values, top)  # as each query of the chunk knows it
        fade = (keys.log_RHT1.mT - highest).clamp(max=0).exp()
        near = ((q @ keys.x_RHTF.mT) * fade).tril() @ v
        outputs.append(near + (q @ total) * (top - highest).exp())
        last = highest[:, :, -1:]
        total = total * (top - last).exp() + keys.scaled(last).mT @ v
        top = last
    return torch.cat(outputs, dim=2), (total, top)


def _initial_state(k: Features, v_RHTE: Tensor) -> State:
    rows, heads, _, count = k.x_RHTF.shape
    lowest = torch.finfo(v_RHTE.dtype).min / 4
    return v_RHTE.new_zeros(rows, heads, count, v_RHTE.shape[-1]), v_RHTE.new_full(
        (rows, heads, 1, 1), lowest
    )


def _with_one(v_RHTE: Tensor) -> Tensor:
    """Append a one to each value: its weighted sum is the denominator."""
    return torch.cat([v_RHTE, torch.ones_like(v_RHTE[..., :1])], dim=-1)


def _normalise(sums_RHTE: Tensor) -> Tensor:
    """Where the sum is zero, or cannot be distinguished from zero, the output is zero."""
    return sums_RHTE[..., :-1] / sums_RHTE[..., -1:].clamp(min=torch.finfo(sums_RHTE.dtype).tiny * 1e6)
