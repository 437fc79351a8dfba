"""What a speaker remembers of what was said: keys and values in a cache, or else the ids, to be read again.

Shape suffixes: R rows, T tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..nn.cache import Cache
from ..nn.kernels import Kernel
from ..nn.model import PairModel, SingleModel
from ..nn.tower import Stack
from .player import Player, Tower, steady


class Past:
    """What was heard so far. `hear` takes new ids and gives their states."""

    def hear(self, tower: Tower, new_RT: Tensor, real_RT: Tensor | None) -> Tensor:
        raise NotImplementedError

    def keep(self, rows_R: Tensor, sources: Tensor | None = None) -> None:
        raise NotImplementedError

    def forget(self, count: int) -> None:
        raise NotImplementedError


def past(model: SingleModel | PairModel, tower: Stack, capacity: int) -> Past:
    kernels = [kernel for kernel in tower.modules() if isinstance(kernel, Kernel)]
    if all("uneven" in kernel.supports or kernel.keeps == "state" for kernel in kernels):
        cache = model.cache(capacity)
        return _Cached(cache, Player(cache) if steady(tower, capacity) else None)
    return _Reread()


class _Cached(Past):
    """Pre-allocated: each step computes one token."""

    def __init__(self, cache: Cache, player: Player | None) -> None:
        self._cache, self._player = cache, player

    def hear(self, tower: Tower, new_RT: Tensor, real_RT: Tensor | None) -> Tensor:
        if self._player is not None and real_RT is None and new_RT.shape[1] == 1:
            return self._player.hear(tower, new_RT)
        return tower(new_RT, real_RT, cache=self._cache)

    def keep(self, rows_R: Tensor, sources: Tensor | None = None) -> None:
        self._cache.reorder(rows_R, sources)

    def forget(self, count: int) -> None:
        self._cache.trim(self._cache.length - count)


class _Reread(Past):
    """For kernels that cannot take one token after another (LSH sorts them all): everything, at each step."""

    def __init__(self) -> None:
        self._ids_RT: Tensor | None = None
        self._real_RT: Tensor | None = None

    def hear(self, tower: Tower, new_RT: Tensor, real_RT: Tensor | None) -> Tensor:
        real_RT = torch.ones_like(new_RT, dtype=torch.bool) if real_RT is None else real_RT
        if self._ids_RT is None or self._real_RT is None:
            self._ids_RT, self._real_RT = new_RT, real_RT
        else:
            self._ids_RT = torch.cat([self._ids_RT, new_RT], dim=1)
            self._real_RT = torch.cat([self._real_RT, real_RT], dim=1)
        return tower(self._ids_RT, self._real_RT, cache=None)[:, -new_RT.shape[1] :]

    def keep(self, rows_R: Tensor, sources: Tensor | None = None) -> None:
        assert self._ids_RT is not None and self._real_RT is not None
        self._ids_RT, self._real_RT = self._ids_RT[rows_R], self._real_RT[rows_R]

    def forget(self, count: int) -> None:
        assert self._ids_RT is not None and self._real_RT is not None
        length = self._ids_RT.shape[1] - count
        self._ids_RT, self._real_RT = self._ids_RT[:, :length], self._real_RT[:, :length]
