"""The engine: a model in; the same model out, prepared for fast inference on this machine.

`prepare_model` packs its matrices in a precision, from float32 to int4; `layout` gives weights the layout in
which results are reproducible; `fused` has operators for what a decode step does between two products. What a
forward pass computes is in `clearhead.nn`; here it is only computed faster.
"""

from .fused import kernels
from .int4 import input_squares
from .int8 import INT8_LEVELS, AsymmetricProduct, int8_operator
from .pages import give_back_pages, private_bytes, trim_heap
from .precision import PRECISIONS, InferencePrecision, check_precision, stored_precision
from .preparing import Preparation, preparation, prepare_model, stored_parameters, unprepare, weight_bytes
from .products import Product, apply_product

__all__ = [
    "PRECISIONS", "InferencePrecision", "check_precision", "stored_precision",
    "give_back_pages", "private_bytes", "trim_heap",
    "input_squares", "Preparation", "prepare_model", "preparation", "stored_parameters", "unprepare",
    "weight_bytes",
    "Product", "AsymmetricProduct", "INT8_LEVELS", "apply_product", "int8_operator", "kernels",
]  # fmt: skip
