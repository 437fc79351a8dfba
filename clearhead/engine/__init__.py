"""The engine: a model in; the same model out, prepared for fast inference on this machine.

`prepare_model` packs its matrices in a precision, from float32 to int4; `layout` gives weights the layout in
which results are reproducible; `fused` has operators for what a decode step does between two products. What a
forward pass computes is in `clearhead.nn`; here it is only computed faster.
"""

from .choice import ROW_CLASSES, all_choices, keep_measured, measure_pack, pack_name
from .fused import kernels
from .int4 import input_squares
from .int8 import INT8_LEVELS, AsymmetricProduct, int8_operator
from .kept import KeptError, KeptKind, KeptReader, KeptWriter, QuantizedMatrix, QuantizedWeights, SourceFile
from .listing import all_products, chosen_product
from .pages import are_as_in_file, give_back_pages, private_bytes, trim_heap
from .precision import PRECISIONS, InferencePrecision, candidates, check_precision, stored_precision
from .preparing import (
    PackProgress,
    Preparation,
    ProductShape,
    drop_stale_products,
    is_quantized,
    preparation,
    prepare_model,
    product_shapes,
    quantized_matrices,
    share_preparation,
    step_bytes,
    stored_parameters,
    unprepare,
    weight_bytes,
)
from .products import Pack, Product, apply_product

__all__ = [
    "PRECISIONS", "InferencePrecision", "check_precision", "stored_precision",
    "give_back_pages", "private_bytes", "trim_heap", "are_as_in_file",
    "KeptError", "KeptKind", "KeptReader", "KeptWriter", "QuantizedMatrix", "QuantizedWeights", "SourceFile",
    "PackProgress", "Preparation", "input_squares", "prepare_model", "preparation", "stored_parameters",
    "unprepare", "weight_bytes", "drop_stale_products", "quantized_matrices", "share_preparation",
    "is_quantized",
    # for captured decode steps
    "Product", "AsymmetricProduct", "INT8_LEVELS", "apply_product", "int8_operator", "kernels",
    # for benchmarks and the doctor
    "ROW_CLASSES", "Pack", "ProductShape", "all_choices", "all_products", "candidates", "chosen_product",
    "keep_measured", "measure_pack", "pack_name", "product_shapes", "step_bytes",
]  # fmt: skip
