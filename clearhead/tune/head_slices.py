"""The heads of an attention as slices of its linear layers, and layers that compute some heads by others.

A head has rows of q, k and v and columns of out. With fewer keys than queries (grouped-query attention), the
heads of a group have the same rows of k and v; a layer that takes some heads from elsewhere then gives each
head keys and values of its own.

Shape suffixes: H heads, O outputs, I inputs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from ..nn import HeadNorms, LinearLayer, MultiHead


@dataclass(frozen=True)
class HeadSlices:
    """One linear layer of an attention: its rows or its columns are cut into `groups` of `width`."""

    axis: Literal["rows", "columns"]
    groups: int
    width: int


def head_count(attention: nn.Module) -> int:
    """How many heads it has; 0 for token mixers without heads, and where layers are mixed already."""
    if not isinstance(attention, MultiHead) or not isinstance(attention.out, LinearLayer):
        return 0
    return attention.out.in_features // attention.value_dim


def head_slices(attention: MultiHead) -> dict[str, HeadSlices]:
    """How the linear layers of an attention are cut into heads, by their names; others serve all heads."""
    rows = {"q": attention.head_dim, "k": attention.head_dim, "v": attention.value_dim}
    if isinstance(plain := getattr(attention, "plain", None), int):  # keys and values from a short vector
        rows["kv_up"] = plain + attention.value_dim
    found: dict[str, HeadSlices] = {}
    for name, layer in attention.named_children():
        width = rows.get(name.removesuffix("_global"))
        if isinstance(layer, LinearLayer) and width is not None:
            found[name] = HeadSlices("rows", layer.out_features // width, width)
    found["out"] = HeadSlices("columns", head_count(attention), attention.value_dim)
    return found


def mixed_attention(before: MultiHead, after: MultiHead, heads: frozenset[int]) -> MultiHead:
    """A copy of `after` that computes these heads with the layers of `before`."""
    count = head_count(after)
    off_H = torch.tensor([head in heads for head in range(count)])
    mixed = copy.copy(after)
    mixed._modules = dict(after._modules)
    for name, cut in head_slices(after).items():
        one, two = before.get_submodule(name), after.get_submodule(name)
        if cut.axis == "columns":
            mixed._modules[name] = MixedColumns(one, two, off_H.repeat_interleave(cut.width))
        else:
            each = count // cut.groups if _is_partial(off_H, cut.groups) else 1
            off_O = off_H[:: count // (cut.groups * each)].repeat_interleave(cut.width)
            mixed._modules[name] = MixedRows(one, two, off_O, repeat=each, width=cut.width)
            if each > 1 and mixed.cached_sizes[0] < count:
                _give_each_head_its_keys(mixed, each)
    return mixed.train(after.training)


def _is_partial(off_H: Tensor, groups: int) -> bool:
    """Whether a group has both heads that are switched off and others."""
    off_GH = off_H.reshape(groups, -1)
    return bool((off_GH.any(1) != off_GH.all(1)).any())


def repeats_keys(mixed: nn.Module | None) -> int:
    """How often a mixed attention repeats the keys and values of `after`."""
    layer = None if mixed is None else mixed._modules.get("v")
    return layer.repeat if isinstance(layer, MixedRows) else 1


def _give_each_head_its_keys(mixed: MultiHead, each: int) -> None:
    count, key_width, value_width = mixed.cached_sizes
    heads = count * each
    mixed.cached_sizes = heads, key_width, value_width
    norm = mixed._modules.get("k_norm")
    if isinstance(norm, HeadNorms):
        mixed._modules["k_norm"] = HeadNorms(norm[head // each] for head in range(heads))
    elif norm is not None and mixed.norm_first:
        mixed._modules["k_norm"] = _repeated_norm(norm, count, each)


def _repeated_norm(norm: nn.Module, groups: int, each: int) -> nn.Module:
    """A norm over all keys as one vector, for a vector in which each key stands several times."""
    result = copy.copy(norm)
    result._parameters = {
        name: None if p is None else nn.Parameter(repeated_heads(p, groups, each), requires_grad=False)
        for name, p in norm._parameters.items()
    }
    if isinstance(result, nn.LayerNorm):
        result.normalized_shape = (result.normalized_shape[0] * each,)
    return result


def repeated_heads(x: Tensor, groups: int, each: int) -> Tensor:
    """The first dimension holds `groups` heads; each of them `each` times."""
    split = x.detach().reshape(groups, -1, *x.shape[1:])
    return split.repeat_interleave(each, dim=0).flatten(0, 1)


class MixedRows(nn.Module):
    """Outputs of one linear layer, some of them those of another. `repeat` gives every head an output."""

    differs_by_row = False

    def __init__(
        self, before: nn.Module, after: nn.Module, off_O: Tensor, *, repeat: int, width: int
    ) -> None:
        super().__init__()
        self.before, self.after, self.repeat, self.width = before, after, repeat, width
        self.register_buffer("off_O", off_O.to(next(after.parameters()).device), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.get_buffer("off_O"), self._each(self.before(x)), self._each(self.after(x)))

    def _each(self, y: Tensor) -> Tensor:
        if self.repeat == 1:
            return y
        heads = y.reshape(*y.shape[:-1], -1, self.width)
        return heads.repeat_interleave(self.repeat, dim=-2).flatten(-2)

    @property
    def matrix(self) -> Tensor:
        one, two = (self._each(cast(LinearLayer, layer).matrix.T).T for layer in (self.before, self.after))
        return torch.where(self.get_buffer("off_O")[:, None], one, two)


class MixedColumns(nn.Module):
    """One linear layer, whose columns for some inputs are those of another; the bias stays."""

    def __init__(self, before: nn.Module, after: nn.Module, off_I: Tensor) -> None:
        super().__init__()
        self.before, self.after = before, after
        self.register_buffer("off_I", off_I.to(next(after.parameters()).device), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        off_I, nothing = self.get_buffer("off_I"), torch.zeros_like(x)
        own = self.before(torch.where(off_I, x, nothing)) - self.before(nothing[..., :1, :])
        result: Tensor = self.after(torch.where(off_I, nothing, x)) + own
        return result
