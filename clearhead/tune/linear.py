"""Linear layers with an adapter: the input in; what the layer and its adapter compute together out.

A layer keeps its weights and their names, so that whatever looks for linear layers finds one: packed
products, layouts, the lens. The adapter's parameters follow: `tower.blocks.0.attn.q.lora.down`.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..nn import LinearLayer, TokenLogits
from .tree import take_over

HALF = (torch.float16, torch.bfloat16)


class MergedWeights(NamedTuple):
    """The weight and the bias of a layer that computes by itself what layer and adapter do; in float64."""

    weight_OI: Tensor
    bias_O: Tensor | None


class LayerAdapter(nn.Module):
    """What a tuning adds to one linear layer."""

    kind: str  # the name of the adapter inside the layer

    def before(self, x: Tensor) -> Tensor:
        """The input that the layer gets."""
        return x

    def after(self, x: Tensor, y: Tensor, layer: TunedLayer) -> Tensor:
        """The output, from the input and the output of the layer alone."""
        return y

    def merge(self, weight_OI: Tensor, bias_O: Tensor | None) -> MergedWeights:
        """Weights of the layer in float64 in, those with the adapter out."""
        raise NotImplementedError


class WithAdapter(nn.Module):
    """A layer with an adapter under the name of its kind."""

    def put_around(self, layer: LinearLayer | TokenLogits, adapter: LayerAdapter) -> None:
        """Become the layer, with its weights and all that it has, and the adapter."""
        take_over(self, layer)
        self._plain = (layer,)  # in a tuple, which makes it no module of the tree
        self.kind = adapter.kind
        self.add_module(adapter.kind, adapter.train(layer.training))

    def merged(self) -> nn.Module:
        """A layer of the kind it was before, whose own weights compute what it computes."""
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        assert weight is not None
        weight_OI, bias_O = self.adapter.merge(weight.double(), None if bias is None else bias.double())
        plain = copy.copy(self._plain[0])
        plain._parameters = {
            "weight": nn.Parameter(weight_OI.to(weight.dtype)),
            "bias": None if bias_O is None else nn.Parameter(bias_O.to(weight.dtype)),
        }
        plain.product = None
        return plain.train(self.training)

    @property
    def adapter(self) -> LayerAdapter:
        found = self._modules[self.kind]
        assert isinstance(found, LayerAdapter)
        return found

    @property
    def matrix(self) -> Tensor:
        """The matrix of layer and adapter together."""
        own = base_matrix(self)
        return self.adapter.merge(own.double(), None).weight_OI.to(own.dtype)


class TunedLinear(WithAdapter, LinearLayer):
    def __init__(self, layer: LinearLayer, adapter: LayerAdapter) -> None:
        self.put_around(layer, adapter)

    def forward(self, x: Tensor) -> Tensor:
        adapter = self.adapter
        if not x.is_contiguous():  # as in `nn.linear`: adapters that learn round as those that do not
            x = x.contiguous()
        x = adapter.before(x)
        return adapter.after(x, super().forward(x), self)


class TunedLogits(WithAdapter, TokenLogits):
    """The product with a vocabulary that is not tied to the embedding, and its adapter."""

    def __init__(self, head: TokenLogits, adapter: LayerAdapter) -> None:
        self.put_around(head, adapter)

    def multiply(self, x: Tensor, weight_VD: Tensor) -> Tensor:
        adapter = self.adapter
        x = adapter.before(x)
        return adapter.after(x, super().multiply(x, weight_VD), self)


TunedLayer = TunedLinear | TunedLogits


def base_matrix(layer: nn.Module) -> Tensor:
    """The matrix of a layer alone: of a quantized one, what it multiplies by."""
    product: Any = layer.product
    matrix: Tensor = layer.weight  # type: ignore[assignment]
    if product is not None and product.trains_adapters:
        matrix = product.dequantized()
    return matrix


def tuned_layer(layer: LinearLayer | TokenLogits, adapter: LayerAdapter) -> TunedLayer:
    return TunedLinear(layer, adapter) if isinstance(layer, LinearLayer) else TunedLogits(layer, adapter)


def adapter_dtype(weight: Tensor) -> torch.dtype:
    """Adapters of a model in half precision learn in float32."""
    return torch.float32 if weight.dtype in HALF else weight.dtype
