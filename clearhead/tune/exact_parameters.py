"""The parameters of a model, adapters included: a model in; one parameter after the other in float64 out.

Nothing is rounded and no second model is made: what an adapter adds to a layer is computed when it is asked
for.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ..engine import stored_parameters
from ..nn import TransformerModel
from .linear import MergedWeights, WithAdapter
from .merging import check_mergeable
from .tuning import AttachedTuning

WHOLE = slice(None)


class ExactParameters:
    """The parameters of a model, or of a tuned one with its adapters in, by their names without adapters."""

    def __init__(self, model: TransformerModel, tuning: AttachedTuning | None = None) -> None:
        if tuning is not None:
            check_mergeable(tuning)
        self.model = model
        self._stored = stored_parameters(model)
        self._adapted = {
            name: layer for name, layer in model.named_modules() if isinstance(layer, WithAdapter)
        }
        adapters = tuple(f"{name}.{layer.kind}." for name, layer in self._adapted.items())
        self.names = tuple(name for name in self._stored if not name.startswith(adapters))
        trained = set() if tuning is None else set(tuning.trained)
        self._trained = [name for name in self.names if name in trained]
        self._last: tuple[WithAdapter, MergedWeights] | None = None

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The parameters that the tuning may have changed."""
        layers = {f"{name}.{end}" for name in self._adapted for end in ("weight", "bias")}
        return tuple(name for name in self.names if name in layers or name in self._trained)

    def stored(self, name: str) -> Tensor:
        """A parameter without its adapter, in the number it is stored in."""
        return self._stored[name]

    @torch.no_grad()
    def exact(self, name: str, rows: slice = WHOLE) -> Tensor:
        """A parameter with its adapter, or some rows of it, in float64."""
        path, _, end = name.rpartition(".")
        layer = self._adapted.get(path)
        if layer is None:
            stored = self._stored[name]
            return (stored[rows] if stored.ndim else stored).cpu().double()
        weight_OI, bias_O = self._merged(path, layer)
        found = weight_OI if end == "weight" else bias_O
        assert found is not None
        return found[rows].cpu()

    def _merged(self, path: str, layer: WithAdapter) -> MergedWeights:
        """Weight and bias of a layer, which are computed together; those of the last one are remembered."""
        if self._last is None or self._last[0] is not layer:
            weight, bias = self._stored[f"{path}.weight"], self._stored.get(f"{path}.bias")
            merged = layer.adapter.merge(weight.double(), None if bias is None else bias.double())
            self._last = (layer, merged)
        return self._last[1]

    def layer(self, name: str) -> WithAdapter | None:
        """The layer with an adapter that has this address."""
        return self._adapted.get(name)
