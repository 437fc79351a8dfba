"""Tuning: a model in; the same model with a few parameters that learn, out. The weights stay as they are.

    tuned = ch.tune(bundle, Lora(rank=8, alpha=16, targets="*.attn.{q,v}"))

A tuning is a frozen value. The tuned model is a second tree of modules over the same weights, with adapters,
virtual tokens or copies of some parameters as further leaves.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from .bottleneck import Bottleneck
from .deltas import Pieces, weighted_sum
from .energy import part_energies
from .exact_parameters import ExactParameters
from .files import AdapterFiles
from .formats import adapter_state, adapter_tuning, kept_files, saved_parameters, write_adapter
from .full import Full
from .ia3 import IA3
from .linear import TunedLinear, TunedLogits, WithAdapter
from .lora import Lora, LoraAdapter
from .merge_methods import (
    Dare,
    DareTies,
    MergedTensor,
    MergeKey,
    MergeMethod,
    Slerp,
    SparseMerge,
    TaskArithmetic,
    Ties,
    WeightedAverage,
)
from .merged_adapter import (
    LowRank,
    Pairs,
    factors_of,
    fill_adapters,
    joined,
    layer_groups,
    lora_of,
    lower_rank,
    truncated,
)
from .merging import merged_model
from .names import ModelNames, names_of_parameters
from .parts import ModelPart, PairedModels, pair_models, why_not_paired
from .row_adapters import SharedAdapters
from .switching import PartSwitches, SwitchedModel, fewer_targets, has_tuned_parts, skip_layers, switch_off
from .targets import ALL_LINEAR, block_layers, linear_layers
from .tree import replace_parameters, second_tree
from .tuning import AttachedTuning, TunedModel, Tuning, attach_tuning
from .virtual import Prefix, Prompt

__all__ = [
    "Tuning", "Lora", "Bottleneck", "IA3", "Prefix", "Prompt", "Full",
    "MergeMethod", "WeightedAverage", "Slerp", "TaskArithmetic", "Ties", "Dare", "DareTies",
    # for the other packages
    "AttachedTuning", "ModelNames", "SharedAdapters", "TunedModel", "attach_tuning", "merged_model",
    "names_of_parameters", "second_tree", "replace_parameters", "ExactParameters", "LowRank", "MergeKey",
    "MergedTensor",
    "SparseMerge", "factors_of", "fill_adapters", "joined", "layer_groups", "lora_of", "lower_rank",
    "truncated", "Pairs", "Pieces", "weighted_sum",
    "ALL_LINEAR", "block_layers", "linear_layers", "WithAdapter", "TunedLinear", "TunedLogits", "LoraAdapter",
    "ModelPart", "PairedModels", "pair_models", "why_not_paired", "part_energies", "SwitchedModel",
    "PartSwitches", "fewer_targets", "skip_layers", "switch_off", "has_tuned_parts",
    "AdapterFiles", "adapter_state", "adapter_tuning", "kept_files", "saved_parameters", "write_adapter",
]  # fmt: skip


class _CallablePackage(ModuleType):
    """`clearhead.tune` is this package, and `clearhead.tune(bundle, Lora())` is public API as well."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        # The function is in a layer above, so it is found by name when it is called.
        return import_module("clearhead.bundle").tune(*args, **settings)


sys.modules[__name__].__class__ = _CallablePackage
