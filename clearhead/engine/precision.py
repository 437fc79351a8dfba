"""Precisions: the number formats that a model can be prepared in, and the products each may use.

float32    exact in the sense that the plain product is
bfloat16   half the bytes; weights and the inputs of products are rounded, everything else is float32
int8       a quarter of the bytes; weights in 255 steps per output, inputs in 255 steps per row
int8-fine  the same weights, inputs in two parts: the quality of float32, less fast
int4       a sixth of the bytes; weights in 16 steps per group of 32, inputs in bfloat16
"""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

import torch

from ..errors import InputError, nearest
from ..nn import Model
from .int8 import InputQuantization, Int8Product
from .products import (
    Pack,
    PackedBfloat16,
    PackedFloat32,
    PlainBfloat16,
    PlainFloat32,
    PlainFloat32ByInputs,
    RoundedFloat32,
)

InferencePrecision = Literal["float32", "bfloat16", "int8", "int8-fine", "int4"]
PRECISIONS: tuple[InferencePrecision, ...] = get_args(InferencePrecision)


def check_precision(name: str) -> InferencePrecision:
    for precision in PRECISIONS:
        if name == precision:
            return precision
    raise InputError(f"precision is {name!r}; {nearest(name, PRECISIONS)}")


def candidates(precision: InferencePrecision) -> tuple[Pack, ...]:
    """The packings between which a measurement decides; for int8 and int4 there is one each."""
    if precision == "float32":
        return (PackedFloat32, PlainFloat32ByInputs, PlainFloat32)
    if precision == "bfloat16":
        return (PackedBfloat16, PlainBfloat16, RoundedFloat32)
    return ()


def int8_inputs(precision: InferencePrecision, spec: Model, *, vocabulary: bool) -> InputQuantization:
    """How the inputs of the int8 product of a block, or of the one with the vocabulary, are quantized.

    The inputs of causal language models have outliers (Dettmers 2022), so they are rounded within their
    range. Before the vocabulary they are split: a third of what int8 loses is lost there, and the product
    takes a few percent longer.
    """
    outliers = spec.decodes and not spec.is_encoder_decoder
    if precision == "int8-fine" or (outliers and vocabulary):
        return "split"
    return "asymmetric" if outliers else "symmetric"


def int8_pack(precision: InferencePrecision, spec: Model, *, vocabulary: bool) -> Pack:
    """The int8 product of a block, or the one with the vocabulary."""
    return partial(Int8Product.of, inputs=int8_inputs(precision, spec, vocabulary=vocabulary))


def stored_precision(number: torch.dtype) -> InferencePrecision:
    """The precision of a model whose weights are stored in this number, unless another is asked for."""
    return "bfloat16" if number == torch.bfloat16 else "float32"
