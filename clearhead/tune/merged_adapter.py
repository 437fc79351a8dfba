"""Several adapters as one: the narrow matrices of each layer in; those of their sum out, or of nearly it.

The sum of low-rank differences has the sum of their ranks: `joined` is exact. Any difference has a best
approximation of a given rank, by its largest singular directions (`truncated`); how much of it is kept is
told by the squares of the singular values.

Shape suffixes: I inputs, O outputs, R rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..nn import TransformerModel
from .exact_parameters import ExactParameters
from .linear import WithAdapter
from .lora import Lora, LoraAdapter
from .names import ModelNames
from .peft import short_names


@dataclass(frozen=True)
class LowRank:
    """up @ down, in float64, and how much of what it stands for it keeps."""

    down_RI: Tensor
    up_OR: Tensor
    kept: float  # sum of squares of the singular values that are kept
    total: float  # and of all

    @property
    def rank(self) -> int:
        return len(self.down_RI)


Pairs = list[tuple[Tensor, Tensor]]  # down (R, I) and scaled up (O, R)


def factors_of(source: ExactParameters, layer: str) -> Pairs | None:
    """The narrow matrices of a layer: none without an adapter, None where it is changed in another way."""
    found = source.layer(layer)
    if found is None:
        return None if f"{layer}.weight" in source.changed else []
    adapter = found.adapter
    if not isinstance(adapter, LoraAdapter) or adapter.magnitude is not None:
        return None
    return adapter.factors()


def joined(parts: Sequence[Sequence[tuple[float, Pairs]]], outputs: Sequence[int], inputs: int) -> LowRank:
    """The exact sum for layers that are one matrix in the checkpoint: a `down` for all, their `up` in blocks.

    Of each part: a factor and the pairs of each adapter. A `down` that several parts share occurs once.
    """
    downs: dict[int, Tensor] = {}  # by memory: what is shared has the same
    for part in parts:
        for _, pairs in part:
            downs |= {down.data_ptr(): down for down, _ in pairs}
    starts, rank = dict[int, int](), 0
    for address, down_RI in downs.items():
        starts[address], rank = rank, rank + len(down_RI)
    up_OR = torch.zeros(sum(outputs), rank, dtype=torch.float64)
    for part, rows in zip(parts, torch.split(up_OR, list(outputs)), strict=True):
        for factor, pairs in part:
            for down_RI, scaled_OR in pairs:
                start = starts[down_RI.data_ptr()]
                rows[:, start : start + len(down_RI)] += factor * scaled_OR.cpu().double()
    empty = torch.zeros(0, inputs, dtype=torch.float64)
    down_RI = torch.cat([empty, *(down.cpu().double() for down in downs.values())])
    # The squares of up @ down, without that matrix.
    total = float(((up_OR.T @ up_OR) * (down_RI @ down_RI.T)).sum())
    return LowRank(down_RI, up_OR, total, total)


def lower_rank(exact: LowRank, rank: int) -> LowRank:
    """The best approximation of lower rank, out of the narrow matrices: as cheap as they are narrow."""
    if exact.rank <= rank:
        return exact
    left, small_RR = torch.linalg.qr(exact.up_OR)
    right, other_RR = torch.linalg.qr(exact.down_RI.T)
    inner = truncated(small_RR @ other_RR.T, rank)
    return LowRank(inner.down_RI @ right.T, left @ inner.up_OR, inner.kept, inner.total)


def truncated(delta_OI: Tensor, rank: int) -> LowRank:
    """The largest singular directions of a matrix, their size shared between both narrow matrices."""
    left, size, right = torch.linalg.svd(delta_OI, full_matrices=False)
    rank = min(rank, len(size))
    root, squares = size[:rank].sqrt(), size.square()
    return LowRank(
        root[:, None] * right[:rank], left[:, :rank] * root, float(squares[:rank].sum()), float(squares.sum())
    )


def lora_of(layers: Mapping[str, LowRank], *, others: Sequence[str], every: Sequence[str]) -> Lora:
    """The tuning that has these ranks. `every` are all linear layers, `others` further parameters that it
    has: those of a head, or biases.
    """
    ranks = {name: max(1, layer.rank) for name, layer in layers.items()}
    rank = Counter(ranks.values()).most_common(1)[0][0]
    unlike = tuple((name, r) for name, r in ranks.items() if r != rank)
    of_layers = {f"{name}.bias" for name in layers}
    biases = {n for n in others if n.endswith("bias") and n.removesuffix("bias") + "weight" not in others}
    bias: Literal["none", "lora_only", "all"] = "lora_only" if biases <= of_layers else "all"
    return Lora(
        rank=rank,
        alpha=rank,
        targets=tuple(short_names(list(layers), every)),
        rank_pattern=unlike,
        alpha_pattern=tuple((name, float(r)) for name, r in unlike),
        bias=bias if biases else "none",
        modules_to_save=tuple(name for name in others if name not in biases),
    )


@torch.no_grad()
def fill_adapters(model: TransformerModel, layers: Mapping[str, LowRank]) -> None:
    """Write the narrow matrices into the adapters of a tuned model."""
    for name, found in layers.items():
        layer = model.get_submodule(name)
        assert isinstance(layer, WithAdapter) and isinstance(layer.adapter, LoraAdapter)
        if found.rank:
            layer.adapter.down.copy_(found.down_RI)
            layer.adapter.up.copy_(found.up_OR)
        else:
            layer.adapter.up.zero_()


def layer_groups(hit: Sequence[str], names: ModelNames) -> list[tuple[str, ...]]:
    """The layers, those together that are one matrix in the checkpoint, if all of them are hit."""
    whole = {name: group for group in names.fused if set(group) <= set(hit) for name in group}
    return list(dict.fromkeys(whole.get(name, (name,)) for name in hit))
