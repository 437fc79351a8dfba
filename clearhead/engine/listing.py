"""Listing: a precision in; every product that there is for it out, for `clearhead bench products`.

A product of int8 or int4 is right to within its own rounding, which is larger than that of bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn import Model
from .choice import PRODUCT_TOLERANCE, choose_product
from .int4 import GROUP_SIZE, MAX_CODE, ZERO_CODE, Int4Product, Int4Weights
from .int8 import AsymmetricProduct, DequantizedProduct, SplitProduct, SymmetricProduct, quantize_rows
from .precision import InferencePrecision, candidates, int8_pack
from .preparing import ProductShape
from .products import Pack, Product

# Relative error of a product of normally distributed numbers: twice what rounding makes it.
INT8_TOLERANCE, INT4_TOLERANCE = 0.04, 0.2


@dataclass(frozen=True)
class _QuantizedPack:
    """A product of quantized weights, packed from floats."""

    product: Callable[[Any, Tensor | None], Product]
    quantize: Callable[[Tensor], Any]
    name: str

    def __call__(self, weight_OI: Tensor, bias_O: Tensor | None) -> Product:
        return self.product(self.quantize(weight_OI), bias_O)


def _round_to_int4(weight_OI: Tensor) -> Int4Weights:
    """Plain rounding: searching better scales takes much longer and changes no speed."""
    outputs, inputs = weight_OI.shape
    groups = F.pad(weight_OI, (0, -inputs % GROUP_SIZE)).view(outputs, -1, GROUP_SIZE)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = ((high - low) / MAX_CODE).bfloat16().float().clamp(min=1e-30)
    codes = ((groups - low) / scale).round().clamp(0, MAX_CODE).byte().view(outputs, -1)[:, :inputs]
    zero = low + ZERO_CODE * scale
    return Int4Weights(codes, scale.squeeze(-1).bfloat16(), zero.squeeze(-1).bfloat16())


INT8_PACKS = tuple(
    _QuantizedPack(kind, quantize_rows, kind.name)
    for kind in (SymmetricProduct, AsymmetricProduct, SplitProduct, DequantizedProduct)
)
INT4_PACK = _QuantizedPack(Int4Product, _round_to_int4, Int4Product.name)


def all_products(precision: InferencePrecision) -> dict[Pack, float]:
    """Every packing of a precision, and the relative error at which it is still right."""
    if precision == "int4":
        return {INT4_PACK: INT4_TOLERANCE}
    if precision == "int8-fine":
        return dict.fromkeys(INT8_PACKS[2:], INT8_TOLERANCE)
    if precision == "int8":  # its product with the vocabulary may be that of int8-fine
        return dict.fromkeys(INT8_PACKS, INT8_TOLERANCE)
    return dict.fromkeys(candidates(precision), PRODUCT_TOLERANCE)


def chosen_product(precision: InferencePrecision, spec: Model, shape: ProductShape) -> str:
    """The name of the product that a model of this spec gets for this shape, on this machine."""
    if precision == "int4":
        return INT4_PACK.name
    if precision in ("int8", "int8-fine"):  # chosen by the kind of the model
        return int8_pack(precision, spec, vocabulary=shape.vocabulary)(torch.eye(16), None).name
    return choose_product(candidates(precision), shape.outputs, shape.inputs).name
