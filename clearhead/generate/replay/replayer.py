"""The step replayer: a new token per row in; hidden states out, by the model or by a captured step.

Recording two steps and compiling them costs about as much as four replayed steps save, so it is done only if
enough steps are left. A captured step belongs to the tensors of one cache: when rows are added or removed,
the cache gets new tensors and the captured step is discarded.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook

from ...nn import KV, Cache, Stack
from .capture import RecordedStep, ReplayFn, compile_replay

MIN_STEPS = 16  # steps that must be left for a capture to pay off
MAX_ATTEMPTS = 4  # captures that may fail or be discarded before the replayer gives up

Forward = Callable[[Tensor], Tensor]  # new ids (R, 1) to hidden states (R, 1, D), through the model


def replay_enabled() -> bool:
    """Whether the environment allows replay: CLEARHEAD_REPLAY=0 turns it off, for people with a debugger."""
    return os.environ.get("CLEARHEAD_REPLAY", "1").lower() not in ("0", "false", "no", "off")


def is_replayable(tower: Stack, capacity: int) -> bool:
    """Whether successive decode steps issue the same torch calls and differ only in sizes.

    True if no layer changes its calls with the length of the text, up to `capacity` tokens, and no forward
    hook is registered that would expect to see every step. On the CPU only: elsewhere a step waits for its
    device, not for Python.
    """
    if any(parameter.device.type != "cpu" for parameter in tower.parameters()):
        return False
    if (tower.spec.max_length or capacity) < capacity:
        return False  # the model itself must refuse the first token beyond its last position
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    for module in tower.modules():
        if module._forward_hooks or module._forward_pre_hooks:
            return False
        if not getattr(module, "is_replayable", True):  # token mixers, kernels and experts have it
            return False
    return True


class StepReplayer:
    """Records two steps of a run, compiles what they have in common, and replays that for later steps."""

    def __init__(self, cache: Cache, *, fuse: bool = False) -> None:
        self._cache, self._attempts, self._fuse = cache, MAX_ATTEMPTS, fuse
        self._recorded: RecordedStep | None = None
        self._replay: ReplayFn | None = None
        self._tensors: tuple[Tensor | None, KV | None] = None, None  # those of the cache at the last step
        self._captured_at = 0  # the length of the cache when the step was captured

    def step(self, forward: Forward, new_R1: Tensor) -> Tensor:
        """The hidden states of one new token per row; `forward` is the model, for steps not replayed."""
        cache, before = self._cache, self._tensors
        self._tensors = cache.tensors
        if not all(old is new for old, new in zip(before, self._tensors, strict=True)):
            self._attempts -= self._replay is not None
            self._replay = self._recorded = None
        if self._replay is not None:
            steps = cache.length - self._captured_at
            cache.advance(torch.ones_like(new_R1, dtype=torch.bool))
            return self._replay(new_R1, steps)
        if self._attempts == 0 or (cache.capacity or 0) - cache.length < MIN_STEPS:
            return forward(new_R1)
        return self._record(forward, new_R1)

    def _record(self, forward: Forward, new_R1: Tensor) -> Tensor:
        previous, self._recorded = self._recorded, RecordedStep(new_R1)
        length = self._cache.length
        with _without_garbage_collection():
            with self._recorded as recorded:
                output = recorded.output = forward(new_R1)
            if previous is not None:
                self._replay, self._captured_at = compile_replay(previous, recorded, fuse=self._fuse), length
                self._attempts -= self._replay is None
                if self._replay is not None:
                    self._recorded = None  # it holds every tensor of the step
        return output


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A capture makes ten thousands of objects and drops them. A collection in between, which visits every
    object of every imported library, would take longer than the capture.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
