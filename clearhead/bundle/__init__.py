"""Bundles: a folder, a name or a spec in; a model with everything that belongs to it out."""

from .ablation import ablations
from .adapter_batches import Together, together
from .adapters import adapter_weights, base_of_adapter, is_adapter, is_peft, why_not_peft
from .building import build
from .bundle import Bundle
from .comparing import base_of, compare
from .comparing_rows import RowChange, RowChanges, compare_rows
from .edits import apply_edits, parse
from .embedding import DEFAULT_POOLING, POOLS, count_cut
from .generation import text_generator
from .guesses import Guess, Prediction
from .heads import stored_labels
from .loading import from_pretrained, load, open_mapped, with_head
from .merge_report import MergeReport
from .merged_results import MergeRank
from .merging import merge
from .part_effects import EffectProgress, Effects
from .prediction import question_of_choice
from .report import Report
from .saving import save, saved_weights
from .specs import spec_of
from .tuning import copy_tuning, difference, model_names, quantized_precision, tune

__all__ = [
    "Bundle", "Report", "build", "load", "from_pretrained", "save", "tune", "merge", "together", "compare",
    # for the other packages
    "ablations", "apply_edits", "parse", "text_generator", "open_mapped", "spec_of", "Guess", "Prediction",
    "saved_weights", "stored_labels", "count_cut", "DEFAULT_POOLING", "POOLS", "question_of_choice",
    "with_head", "copy_tuning", "quantized_precision", "model_names", "adapter_weights", "is_adapter",
    "is_peft", "why_not_peft", "base_of_adapter", "Together", "base_of", "EffectProgress", "Effects",
    "compare_rows", "RowChange", "RowChanges", "MergeReport", "MergeRank", "difference",
]  # fmt: skip
