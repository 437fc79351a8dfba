"""Shallow clones: a second tree of modules over the same weights, with parts replaced or taps on it.

Only the tree is copied, so a clone needs no memory for weights, and whatever uses a model (decoding, the
lens, evaluation) uses a clone in the same way. The original model does not change.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

from ..nn import OFF, RouterCall, Stack, States, Tap, TransformerModel
from ..nn.kernels import RecordedCall

M = TypeVar("M", bound=nn.Module)
ModelT = TypeVar("ModelT", bound=TransformerModel)


def shallow_clone(module: M) -> M:
    """Copy the module tree, not its tensors. Shared layers become separate modules with the same weights."""
    clone = copy.copy(module)
    clone._modules = {name: child and shallow_clone(child) for name, child in module._modules.items()}
    return clone


def with_tap(model: ModelT, tap: Tap) -> ModelT:
    """Apply a tap to every later call of a clone."""
    for name, tower in model.stacks.items():
        model._modules[name] = _StackWithTap(tower, tap.at(name))
    return model


class _StackWithTap(nn.Module):
    """A stack that applies a tap to each of its calls."""

    def __init__(self, tower: Stack, tap: Tap) -> None:
        super().__init__()
        self.stack = tower
        self.tap = tap
        self.eval()

    def forward(self, *args: Any, tap: Tap = OFF, **options: Any) -> States:
        states: States = self.stack(*args, tap=chain_taps(self.tap, tap), **options)
        return states

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["stack"], name)


def chain_taps(*taps: Tap) -> Tap:
    """Several taps as one: each receives the output of the one before it."""
    active = [tap for tap in taps if tap is not OFF]
    return active[0] if len(active) == 1 else _TapChain(active) if active else OFF


class _TapChain(Tap):
    def __init__(self, taps: Sequence[Tap]) -> None:
        super().__init__("", lambda _, x: x)
        self._taps = taps

    def at(self, name: str | int) -> Tap:
        return _TapChain([tap.at(name) for tap in self._taps])

    def wants(self, site: str) -> bool:
        return any(tap.wants(site) for tap in self._taps)

    def __call__(self, site: str, x: Tensor) -> Tensor:
        for tap in self._taps:
            x = tap(site, x)
        return x

    def record_call(self, call: RecordedCall) -> None:
        for tap in self._taps:
            tap.record_call(call)

    def record_routing(self, routing: RouterCall) -> None:
        for tap in self._taps:
            tap.record_routing(routing)
