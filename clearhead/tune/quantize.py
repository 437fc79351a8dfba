"""Quantising: a model in; the same model out, leaner and faster, with its large matrices in int8.

Rounded: every linear layer of the blocks, the table of tokens and the product with the vocabulary. Kept as
they are: norms, positions, segment types, and the small heads that decide between a few labels.

Inputs are rounded on their way into each product. Language models that only look back have outliers in them
(Dettmers 2022); their inputs get steps that fit each row. `int8-fine` splits all inputs in two and loses
nothing: see int8.py.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from ..errors import InputError, nearest
from ..nn import Labels, Pooled, Span, Stack, Tags, TokenEmbedding, TokenHead, TokenLogits, TransformerModel
from ..nn.norm import soft_cap
from .fuse import Product, fuse
from .int8 import Frozen, Inputs, Int8Linear, Int8Table

# Heads that do not read the embedding's table, or whose product with it is rounded here; others keep it.
TABLE_FREE = (TokenHead, Labels, Tags, Span, Pooled, type(None))
KINDS = ("int8", "int8-fine")


def quantize(model: TransformerModel, to: str) -> TransformerModel:
    """Changes the model in place, layer by layer, so that at no time there are two of it in memory."""
    if to not in KINDS:
        raise InputError(f"quantize is {to!r}; {nearest(to, KINDS)}")
    outliers = model.spec.decodes and not model.spec.is_encoder_decoder
    inputs: Inputs = "split" if to == "int8-fine" else "fitted" if outliers else "rounded"
    made = partial(Int8Linear.of, inputs=inputs)
    towers = [module for module in model.modules() if isinstance(module, Stack)]
    if isinstance(model.head, TokenLogits):
        model.head = _Int8Logits(model.head, towers[-1], made)
    tables: dict[nn.Module, nn.Module] = {}  # encoder and decoder may look ids up in one table
    for tower in towers:
        for block in tower.blocks:
            _quantize_layers(block, made)
        if isinstance(tower.embed, TokenEmbedding) and isinstance(model.spec.head, TABLE_FREE):
            table = tower.embed.table
            if table not in tables:
                tables[table] = Int8Table(table.weight)
            tower.embed.register_module("table", tables[table])
    return model


def is_quantized(model: nn.Module) -> bool:
    return any(isinstance(module, Frozen) for module in model.modules())


def weight_bytes(model: nn.Module) -> int:
    """What the weights of a model take in memory, rounded ones and those that stayed as they were."""
    kept = sum(p.numel() * p.element_size() for p in model.parameters())
    return kept + sum(module.rounded_bytes for module in model.modules() if isinstance(module, Frozen))


def _quantize_layers(block: nn.Module, made: Product) -> None:
    for module in list(block.modules()):
        if fusable := getattr(module, "FUSABLE", ()):
            fuse(module, fusable, made)
        for name, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(module, name, made(layer.weight, layer.bias))


class _Int8Logits(Frozen):
    """A vocabulary head whose matrix, its own or the embedding's, is int8."""

    def __init__(self, head: TokenLogits, tower: Stack, made: Product) -> None:
        super().__init__()
        self.transform, self.scale, self.cap = head.transform, head.scale, head.cap
        assert isinstance(tower.embed, TokenEmbedding)
        weight = tower.embed.table.weight if head.weight is None else head.weight
        self.product = made(weight, head.bias)

    def forward(self, x_BTD: Tensor, real_BT: Tensor | None, table_VD: Tensor) -> Tensor:
        x = x_BTD if self.transform is None else self.transform(x_BTD)
        x = x if self.scale == 1.0 else x * self.scale
        return soft_cap(self.product(x), self.cap)
