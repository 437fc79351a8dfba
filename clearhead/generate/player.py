"""A player: a new token of each row in; their states out, by the tower itself or played from a tape of it.

Watching two steps and writing them down costs about as much as four steps save, so it is done only where
enough are left. A tape is of one cache: when rows come or go, the tensors of the cache are others, and the
tape is thrown away.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook

from ..nn.attention import MultiHead, TokenMixerModule
from ..nn.cache import KV, Cache
from ..nn.kernels.window_blocks import width_of
from ..nn.masks import Window
from ..nn.tower import Stack
from .tape import Play, Watched, tape

WORTH = 16  # steps that must be left for a tape to pay
TRIES = 4  # steps in a row that may be unlike, and tapes that may be thrown away, before it is given up


class Tower(Protocol):
    """Ids, a mask and a cache in, hidden states out."""

    def __call__(self, ids_RT: Tensor, mask: Tensor | None, /, *, cache: Cache | None) -> Tensor: ...


def steady(tower: Stack, capacity: int) -> bool:
    """Whether a step differs from the one before in its numbers only, up to this many tokens.

    That is so where nothing on the way decides by the length of the text, and nobody listens on the way.
    """
    if getattr(tower.positions, "length", capacity) < capacity:
        return False  # it will say so when it comes to its last position
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    for module in tower.modules():
        if module._forward_hooks or module._forward_pre_hooks:
            return False
        if isinstance(module, TokenMixerModule):
            if not isinstance(module, MultiHead) or not module.kernel.steady:
                return False
            rule = getattr(module, "rule", None)
            if isinstance(rule, Window) and width_of(rule.left, 0, 1, capacity) is not None:
                return False
    return True


class Player:
    """Watches, then plays."""

    def __init__(self, cache: Cache) -> None:
        self._cache, self._tries = cache, TRIES
        self._watched: Watched | None = None
        self._play: Play | None = None
        self._stands: tuple[Tensor | None, KV | None] = None, None  # what the cache held at the last step
        self._at = 0  # the length of the cache when the tape was made

    def hear(self, tower: Tower, new_R1: Tensor) -> Tensor:
        cache = self._cache
        if not self._stands_still():
            self._tries -= self._play is not None
            self._play = self._watched = None
        if self._play is not None:
            steps = cache.length - self._at
            cache.saw(torch.ones_like(new_R1, dtype=torch.bool))
            for layer in cache.layers:
                layer.length += 1
            return self._play(new_R1, steps)
        if self._tries == 0 or (cache.capacity or 0) - cache.length < WORTH:
            return tower(new_R1, None, cache=cache)
        return self._watch(tower, new_R1)

    def _stands_still(self) -> bool:
        """Whether the cache has the tensors it had: others come as soon as rows come, go or change source."""
        layer = self._cache.layers[0]
        now = (layer.held and layer.held[0], layer.cross)
        still = all(one is other for one, other in zip(self._stands, now, strict=True))
        self._stands = now
        return still

    def _watch(self, tower: Tower, new_R1: Tensor) -> Tensor:
        before, self._watched = self._watched, Watched(new_R1)
        length = self._cache.length
        with self._watched as watched:
            answer = watched.answer = tower(new_R1, None, cache=self._cache)
        if before is not None:
            self._play, self._at = tape(before, watched), length
            self._tries -= self._play is None
            if self._play is not None:
                self._watched = None  # it holds every tensor of the step
        return answer
