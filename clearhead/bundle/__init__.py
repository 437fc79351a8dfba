"""Bundles: a folder, a name or a spec in; a model with everything that belongs to it out."""

from .ablation import ablations
from .building import build, spec_of
from .bundle import Bundle
from .edits import apply_edits, parse
from .embedding import DEFAULT_POOLING, POOLS
from .generation import text_generator
from .heads import stored_labels
from .loading import load, open_mapped, with_head
from .prediction import Guess, Prediction
from .report import Report
from .saving import save, saved_weights

__all__ = [
    "Bundle", "Report", "build", "load", "save",
    # for the other packages
    "ablations", "apply_edits", "parse", "text_generator", "open_mapped", "spec_of", "Guess", "Prediction",
    "saved_weights", "stored_labels", "DEFAULT_POOLING", "POOLS", "with_head",
]  # fmt: skip
