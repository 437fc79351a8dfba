"""Merging: a tuned model in; a model whose own weights compute the same, without adapters, out.

Sums are computed in float64 and rounded once, to the number of the weights.
"""

from __future__ import annotations

import torch
from torch import nn

from ..errors import UnsupportedError
from ..nn import TransformerModel
from .linear import WithAdapter
from .tree import own_parameters, replace_modules, second_tree
from .tuning import AttachedTuning


@torch.no_grad()
def merged_model(model: TransformerModel, tuning: AttachedTuning) -> TransformerModel:
    """A tree over the same weights, in which layers with an adapter have weights of their own."""
    merged = second_tree(model)
    changes: dict[nn.Module, nn.Module] = {}
    for module in merged.modules():
        if isinstance(module, WithAdapter) and module not in changes:
            changes[module] = module.merged()
    check_mergeable(tuning)
    replace_modules(merged, changes)
    # What was trained besides, such as a head, may be trained further in the tuned model: it is copied.
    own_parameters(merged, [name for name, _ in merged.named_parameters() if name in tuning.trained])
    for parameter in merged.parameters():
        parameter.requires_grad_()
    return merged


def check_mergeable(tuning: AttachedTuning) -> None:
    """Raise an error if some of what was added acts beside the weights."""
    if left := tuning.beside:
        kind = type(tuning.value).__name__
        raise UnsupportedError(
            f"{kind} cannot be merged into the weights: {left[0]} acts beside them; save the adapter, which "
            f"opens over its base"
        )
