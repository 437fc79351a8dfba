"""The engine: a model in; the same model out, prepared for fast inference on this machine.

`prepare_model` packs its matrices in a precision, from float32 to int4; `layout` gives weights the layout in
which results are reproducible. What a forward pass computes is in `clearhead.nn`; here it is only computed
faster.
"""

from .kept import KeptError, KeptKind, KeptReader, KeptWriter, QuantizedWeights, SourceFile
from .pages import are_as_in_file, give_back_pages, private_bytes, trim_heap
from .precision import PRECISIONS, InferencePrecision, check_precision, stored_precision
from .preparing import (
    Preparation,
    drop_stale_products,
    packed_weights,
    preparation,
    prepare_model,
    stored_parameters,
    unprepare,
    weight_bytes,
)

__all__ = [
    "PRECISIONS", "InferencePrecision", "check_precision", "stored_precision",
    "give_back_pages", "private_bytes", "trim_heap", "are_as_in_file",
    "KeptError", "KeptKind", "KeptReader", "KeptWriter", "QuantizedWeights", "SourceFile",
    "Preparation", "prepare_model", "preparation", "stored_parameters", "unprepare", "weight_bytes",
    "drop_stale_products", "packed_weights",
]  # fmt: skip
