"""A shadow: a second tree of modules over the same weights. Parts of it can be swapped; the model stays.

Nothing is copied but the tree itself, so a shadow costs no memory, and whatever uses a model (decoding, the
lens, scoring) uses a shadow in the same way.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import nn

from ..nn.context import States
from ..nn.model import PairModel, SingleModel
from ..nn.tap import OFF, Tap
from ..nn.tower import Stack
from .several import several

M = TypeVar("M", bound=nn.Module)


def shadow(module: M) -> M:
    """Every place of the tree has a module of its own, layers that share their weights included."""
    twin = copy.copy(module)
    twin._modules = {name: child and shadow(child) for name, child in module._modules.items()}
    return twin


def towers(model: SingleModel | PairModel) -> dict[str, Stack]:
    """The towers of a model by the names they have in addresses."""
    if isinstance(model, PairModel):
        return {"encoder": model.encoder, "decoder": model.decoder}
    return {"tower": model.tower}


def tapped(model: M, tap: Tap) -> M:
    """Lay a tap over every later call of a shadow, whoever makes it."""
    assert isinstance(model, SingleModel | PairModel)
    for name, tower in towers(model).items():
        model._modules[name] = _Tapped(tower, tap.at(name))
    return model


class _Tapped(nn.Module):
    """A tower that is always watched."""

    def __init__(self, tower: Stack, tap: Tap) -> None:
        super().__init__()
        self.stack = tower
        self.tap = tap
        self.eval()

    def forward(self, *args: Any, tap: Tap = OFF, **more: Any) -> States:
        states: States = self.stack(*args, tap=several(self.tap, tap), **more)
        return states

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["stack"], name)
