"""Quantization: a model in; the same model out, smaller and faster, with its large matrices in int8.

Quantized are the linear layers of the blocks, the token table and the product with the vocabulary. Norms,
positions, segment types and small classification heads stay as they are.

The inputs of each product are quantized as well. Those of causal language models have outliers (Dettmers
2022), so they are quantized asymmetrically. `int8-fine` splits them in two and loses nothing: see int8.py.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from ..errors import InputError, nearest
from ..nn import Labels, Pooled, Span, Stack, Tags, TokenEmbedding, TokenHead, TokenLogits, TransformerModel
from ..nn.norm import soft_cap
from .fuse import Product, fuse
from .int8 import InputQuantization, Int8Linear, Int8Module, Int8Table

# Heads that do not use the embedding table, or whose product with it is quantized here; others keep it.
TABLE_FREE = (TokenHead, Labels, Tags, Span, Pooled, type(None))
KINDS = ("int8", "int8-fine")


def quantize(model: TransformerModel, to: str) -> TransformerModel:
    """Quantize the model in place, layer by layer, so that there is never a second copy in memory."""
    if to not in KINDS:
        raise InputError(f"quantize is {to!r}; {nearest(to, KINDS)}")
    outliers = model.spec.decodes and not model.spec.is_encoder_decoder
    inputs: InputQuantization = "split" if to == "int8-fine" else "asymmetric" if outliers else "symmetric"
    linear = partial(Int8Linear.of, inputs=inputs)
    towers = [module for module in model.modules() if isinstance(module, Stack)]
    if isinstance(model.head, TokenLogits):
        model.head = _Int8Logits(model.head, towers[-1], linear)
    tables: dict[nn.Module, nn.Module] = {}  # encoder and decoder may share one table
    for tower in towers:
        for block in tower.blocks:
            _quantize_layers(block, linear)
        if isinstance(tower.embed, TokenEmbedding) and isinstance(model.spec.head, TABLE_FREE):
            table = tower.embed.table
            if table not in tables:
                tables[table] = Int8Table(table.weight)
            tower.embed.register_module("table", tables[table])
    return model


def is_quantized(model: nn.Module) -> bool:
    return any(isinstance(module, Int8Module) for module in model.modules())


def weight_bytes(model: nn.Module) -> int:
    """Size of the weights of a model, quantized and not."""
    kept = sum(p.numel() * p.element_size() for p in model.parameters())
    return kept + sum(module.quantized_bytes for module in model.modules() if isinstance(module, Int8Module))


def _quantize_layers(block: nn.Module, linear: Product) -> None:
    for module in list(block.modules()):
        if fusable := getattr(module, "FUSABLE", ()):
            fuse(module, fusable, linear)
        for name, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(module, name, linear(layer.weight, layer.bias))


class _Int8Logits(Int8Module):
    """A vocabulary head whose matrix, its own or the embedding's, is int8."""

    def __init__(self, head: TokenLogits, tower: Stack, linear: Product) -> None:
        super().__init__()
        self.transform, self.scale, self.cap = head.transform, head.scale, head.cap
        assert isinstance(tower.embed, TokenEmbedding)
        weight = tower.embed.table.weight if head.weight is None else head.weight
        self.product = linear(weight, head.bias)

    def forward(self, x_BTD: Tensor, real_BT: Tensor | None, table_VD: Tensor) -> Tensor:
        x = x_BTD if self.transform is None else self.transform(x_BTD)
        x = x if self.scale == 1.0 else x * self.scale
        return soft_cap(self.product(x), self.cap)
