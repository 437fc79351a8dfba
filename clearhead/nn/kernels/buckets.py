"""The hashing and sorting of LSH attention: vectors in, which tokens share a chunk out.

Shape suffixes: N texts of one length, H heads, T tokens, L the same filled up to whole chunks, R rounds,
C chunks, W tokens of a chunk, S keys that a chunk looks at, K keys of the call, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .chunks import neighbour_range, with_neighbours
from .sequences import EqualLength

if TYPE_CHECKING:
    from .lsh import LSH


@dataclass(frozen=True)
class Rounds:
    """The sorted chunks of every round. Tokens are indices into their text; those from T on are padding."""

    q_NHRCW: Tensor
    k_NHRCS: Tensor
    place_NHRT: Tensor  # the index of each token in the sorted row of a round
    times: Tensor | None = None  # in how many rounds a pair shares a chunk; None: count it each time

    def queries(self, x_NHTE: Tensor) -> Tensor:
        return _pick(x_NHTE, self.q_NHRCW)

    def keys(self, x_NHTE: Tensor) -> Tensor:
        return _pick(x_NHTE, self.k_NHRCS)

    def unsort_rounds(self, x_NHRCWE: Tensor) -> Tensor:
        """(N, H, R, T, E): the result of each round, in the order of the tokens."""
        x_NHRLE = x_NHRCWE.flatten(3, 4)
        return x_NHRLE.gather(3, self.place_NHRT[..., None].expand(-1, -1, -1, -1, x_NHRLE.shape[-1]))

    def unsort(self, x_NHRCWE: Tensor) -> Tensor:
        """(N, H, T, E): the sum over rounds, in the order of the tokens."""
        return self.unsort_rounds(x_NHRCWE).sum(2)

    def queries_by_round(self, x_NHRTE: Tensor) -> Tensor:
        """(N, H, R, C, W, E): the inverse of `unsort_rounds`."""
        at = self.q_NHRCW.flatten(3).clamp(max=x_NHRTE.shape[3] - 1)
        picked = x_NHRTE.gather(3, at[..., None].expand(-1, -1, -1, -1, x_NHRTE.shape[-1]))
        return picked.reshape(*self.q_NHRCW.shape, -1)

    def slots(self, slot_NT: Tensor, at_NHRCW: Tensor) -> Tensor:
        """The slots of these tokens in the call."""
        at = at_NHRCW.clamp(max=slot_NT.shape[-1] - 1)
        return slot_NT[:, None, None, None].expand(*at.shape[:-1], -1).gather(-1, at)

    def pairs(self, bias_BHQK: Tensor, group: EqualLength) -> Tensor:
        """(N, H, R, C, W, S): the bias of the pairs that share a chunk."""
        n, h = group.row_N, torch.arange(bias_BHQK.shape[1], device=bias_BHQK.device)
        q_slot, k_slot = (self.slots(group.slot_NT, x) for x in (self.q_NHRCW, self.k_NHRCS))
        at = n[:, None, None, None, None, None], h[:, None, None, None, None]
        return bias_BHQK[(*at, q_slot[..., None], k_slot[..., None, :])]

    def dense(self, weights_NHRCWS: Tensor, slot_NT: Tensor, keys: int) -> Tensor:
        """(N, H, T, K): the weights of all rounds as one matrix over the slots of the call."""
        columns = self.slots(slot_NT, self.k_NHRCS)[..., None, :]
        dense = weights_NHRCWS.new_zeros(*weights_NHRCWS.shape[:-1], keys)
        return self.unsort(dense.scatter_add(-1, columns.expand(weights_NHRCWS.shape), weights_NHRCWS))


def hash_rounds(q_NHTE: Tensor, k_NHTE: Tensor, spec: LSH) -> Rounds:
    """Hash queries and keys in the same way and sort them separately; chunk i attends to chunk i."""
    length = q_NHTE.shape[2]
    if length <= spec.chunk:  # a single chunk: full attention
        everyone = torch.arange(length, device=q_NHTE.device).expand(*q_NHTE.shape[:2], 1, 1, -1)
        return Rounds(everyone, everyone, everyone[:, :, :, 0])
    size = spec.multiple or spec.chunk
    full = -(-length // size) * size
    directions = _directions(q_NHTE, spec, full)
    q_NHRL, k_NHRL = (_sorted(_hash(x, directions), full) for x in (q_NHTE, k_NHTE))
    q_NHRCW, k_NHRCW = (x.reshape(*x.shape[:3], -1, spec.chunk) for x in (q_NHRL, k_NHRL))
    q_place, k_place = (x.argsort(dim=-1)[..., :length] for x in (q_NHRL, k_NHRL))
    if spec.repeats == "counted":
        ring = with_neighbours(k_NHRCW.flatten(2, 3), spec.before, spec.after)
        return Rounds(q_NHRCW, ring.reshape(*k_NHRCW.shape[:4], -1), q_place)
    k_NHRCS = with_neighbours(k_NHRCW, spec.before, spec.after)
    times = _times(q_NHRCW, k_NHRCS, q_place // spec.chunk, k_place // spec.chunk, spec)
    return Rounds(q_NHRCW, k_NHRCS, q_place, times)


def _times(q_NHRCW: Tensor, k_NHRCS: Tensor, q_chunk_NHRT: Tensor, k_chunk_NHRT: Tensor, spec: LSH) -> Tensor:
    """In how many rounds each pair shares a chunk: one or more."""
    chunks, last = q_NHRCW.shape[3], q_chunk_NHRT.shape[-1] - 1
    before, after = neighbour_range(chunks, spec.before, spec.after)
    times = torch.zeros(*q_NHRCW.shape, k_NHRCS.shape[-1], dtype=torch.int16, device=q_NHRCW.device)
    for mine, theirs in zip(q_chunk_NHRT.unbind(2), k_chunk_NHRT.unbind(2), strict=True):
        one = mine.gather(-1, q_NHRCW.flatten(2).clamp(max=last)).reshape(q_NHRCW.shape)
        two = theirs.gather(-1, k_NHRCS.flatten(2).clamp(max=last)).reshape(k_NHRCS.shape)
        for back in range(-after, before + 1):
            times += one.short()[..., None] == ((two + back) % chunks).short()[..., None, :]
    return times.clamp(min=1)


def _directions(x_NHTE: Tensor, spec: LSH, full: int) -> list[Tensor]:
    """(H, E, R, half the buckets) random directions for each factor: a function of the seed alone."""
    buckets = spec.buckets or _enough(full // spec.chunk, spec.chunk)
    key = torch.Generator().manual_seed(spec.seed)
    dtype = torch.float64 if x_NHTE.dtype == torch.float64 else torch.float32
    shape = (x_NHTE.shape[1], x_NHTE.shape[3], spec.rounds, sum(buckets) // 2)
    drawn = torch.randn(shape, generator=key, dtype=dtype).to(x_NHTE.device)
    return list(torch.split(drawn, [b // 2 for b in buckets], dim=-1))


def _enough(chunks: int, size: int) -> tuple[int, ...]:
    """A power of two, at most two per chunk; as two factors if one hash would be too expensive."""
    power = (2 * chunks).bit_length() - 1
    return (2**power,) if 2**power <= 2 * size else (2 ** (power // 2), 2 ** (power - power // 2))


def _hash(x_NHTE: Tensor, directions: list[Tensor]) -> Tensor:
    """(N, H, R, T): the number of the bucket in each round."""
    buckets, product = torch.zeros((), dtype=torch.long, device=x_NHTE.device), 1
    for part in directions:
        near = torch.einsum("nhte,herb->nhrtb", x_NHTE.to(part.dtype), part)
        buckets = buckets + product * torch.cat([near, -near], dim=-1).argmax(-1)
        product *= 2 * part.shape[-1]
    return buckets


def _sorted(bucket_NHRT: Tensor, full: int) -> Tensor:
    """(N, H, R, L): tokens in the order of their buckets, followed by padding."""
    order = bucket_NHRT.argsort(dim=-1, stable=True)
    fillers = torch.arange(order.shape[-1], full, device=order.device).expand(*order.shape[:3], -1)
    return torch.cat([order, fillers], dim=-1)


def _pick(x_NHTE: Tensor, at_NHRCW: Tensor) -> Tensor:
    """(N, H, R, C, W, E): vectors by token; padding gets some vector, and is masked later."""
    flat = at_NHRCW.flatten(2).clamp(max=x_NHTE.shape[2] - 1)
    picked = x_NHTE.gather(2, flat[..., None].expand(-1, -1, -1, x_NHTE.shape[-1]))
    return picked.reshape(*at_NHRCW.shape, -1)
