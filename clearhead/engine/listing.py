"""Listing: a precision in; every product that there is for it out, for `clearhead bench products`.

A product of int8 or int4 is right to within its own rounding, which is larger than that of bfloat16.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn import Model
from .choice import PRODUCT_TOLERANCE, choose_product
from .int4 import GROUP_SIZE, MAX_CODE, ZERO_CODE, Int4Product, Int4Weights
from .int8 import (
    AsymmetricProduct,
    DequantizedProduct,
    Int8Product,
    SplitProduct,
    SymmetricProduct,
    quantize_rows,
)
from .precision import InferencePrecision, candidates, int8_pack
from .preparing import ProductShape
from .products import Pack, Product

# Relative error of a product of normally distributed numbers: twice what rounding makes it.
INT8_TOLERANCE, INT4_TOLERANCE = 0.04, 0.2


def all_products(precision: InferencePrecision) -> dict[Pack, float]:
    """Every packing of a precision, and the relative error at which it is still right."""
    if precision == "int4":
        return {INT4_BY_ROUNDING: INT4_TOLERANCE}
    if precision == "int8-fine":
        return dict.fromkeys(map(_Int8Pack, (SplitProduct, DequantizedProduct)), INT8_TOLERANCE)
    if precision == "int8":  # its product with the vocabulary may be that of int8-fine
        kinds = (SymmetricProduct, AsymmetricProduct, SplitProduct, DequantizedProduct)
        return dict.fromkeys(map(_Int8Pack, kinds), INT8_TOLERANCE)
    return dict.fromkeys(candidates(precision), PRODUCT_TOLERANCE)


def chosen_product(precision: InferencePrecision, spec: Model, shape: ProductShape) -> str:
    """The name of the product that a model of this spec gets for this shape, on this machine."""
    if precision == "int4" and not shape.vocabulary:
        return INT4_BY_ROUNDING.name
    if precision in ("int8", "int8-fine", "int4"):  # chosen by the kind of the model
        return int8_pack(precision, spec, vocabulary=shape.vocabulary)(torch.eye(16), None).name
    return choose_product(candidates(precision), shape.outputs, shape.inputs).name


class _Int8Pack:
    """One of the int8 products, from a float matrix."""

    def __init__(self, kind: type[Int8Product]) -> None:
        self.kind, self.name = kind, kind.name

    def __call__(self, weight_OI: Tensor, bias_O: Tensor | None) -> Product:
        return self.kind(quantize_rows(weight_OI), bias_O)


class _RoundedInt4:
    """Int4 by plain rounding: searching better scales takes much longer and changes no speed."""

    name = Int4Product.name

    def __call__(self, weight_OI: Tensor, bias_O: Tensor | None) -> Product:
        outputs, inputs = weight_OI.shape
        groups = F.pad(weight_OI, (0, -inputs % GROUP_SIZE)).view(outputs, -1, GROUP_SIZE)
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        scale = ((high - low) / MAX_CODE).bfloat16().float().clamp(min=1e-30)
        codes = ((groups - low) / scale).round().clamp(0, MAX_CODE).byte().view(outputs, -1)[:, :inputs]
        zero = low + ZERO_CODE * scale
        weights = Int4Weights(codes, scale.squeeze(-1).bfloat16(), zero.squeeze(-1).bfloat16())
        return Int4Product(weights, bias_O)


INT4_BY_ROUNDING = _RoundedInt4()
