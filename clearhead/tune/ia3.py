"""IA3 (Liu 2022): keys, values and the hidden layer of the feed-forward are multiplied by learned numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..nn import LinearLayer, TokenLogits, TransformerModel
from .linear import LayerAdapter, MergedWeights, TunedLayer, adapter_dtype, tuned_layer
from .names import ModelNames
from .targets import find_targets, linear_layers
from .tree import replace_modules
from .tuning import Attachment, Tuning


@dataclass(frozen=True, kw_only=True)
class IA3(Tuning):
    """One number for each output of the layers in `targets`, and for each input of those in `feedforward`."""

    rate: ClassVar[float] = 200.0

    targets: str | tuple[str, ...] = "*.{attn,cross}.{k,v}"  # layers whose outputs are multiplied
    feedforward: str | tuple[str, ...] = (
        "*.ff.{down,experts.*.down}"  # layers whose inputs are multiplied; () for none
    )

    def attach(self, model: TransformerModel, names: ModelNames, seed: int) -> Attachment:
        outputs = find_targets(model, self.targets, names, "IA3") if self.targets else []
        inputs = find_targets(model, self.feedforward, names, "IA3") if self.feedforward else []
        if not outputs and not inputs:
            raise InputError("IA3 has no targets; name some, such as targets='*.attn.{k,v}'")
        layers = linear_layers(model)
        sides: dict[str, Literal["in", "out"]] = {
            **dict.fromkeys(outputs, "out"),
            **dict.fromkeys(inputs, "in"),
        }
        hit = tuple(name for name in layers if name in sides)
        adapters = {name: ScaleAdapter(layers[name], sides[name]) for name in hit}
        for group in names.fused:
            _share_inputs([adapters[name] for name in group if name in adapters], len(group))
        replace_modules(model, {layers[n]: tuned_layer(layers[n], a) for n, a in adapters.items()})
        return Attachment(layers=hit)


def _share_inputs(adapters: Sequence[ScaleAdapter], whole: int) -> None:
    """Layers that the checkpoint stores as one matrix have one input, whose factors they share."""
    if len(adapters) == whole > 1 and {adapter.side for adapter in adapters} == {"in"}:
        for adapter in adapters[1:]:
            adapter.scale = adapters[0].scale


class ScaleAdapter(LayerAdapter):
    kind = "ia3"

    def __init__(self, layer: LinearLayer | TokenLogits, side: Literal["in", "out"]) -> None:
        super().__init__()
        assert isinstance(layer.weight, Tensor)
        outputs, inputs = layer.weight.shape
        self.side = side
        size = outputs if side == "out" else inputs
        number, device = adapter_dtype(layer.weight), layer.weight.device
        self.scale = nn.Parameter(torch.ones(size, dtype=number, device=device))

    def before(self, x: Tensor) -> Tensor:
        return x * self.scale.to(x.dtype) if self.side == "in" else x

    def after(self, x: Tensor, y: Tensor, layer: TunedLayer) -> Tensor:
        return y * self.scale.to(y.dtype) if self.side == "out" else y

    def merge(self, weight_OI: Tensor, bias_O: Tensor | None) -> MergedWeights:
        scale = self.scale.double()
        if self.side == "in":
            return MergedWeights(weight_OI * scale, bias_O)
        return MergedWeights(weight_OI * scale[:, None], None if bias_O is None else bias_O * scale)
