"""Tuning: a model in; the same model out, quantized to int8 or with its weights laid out for speed."""

from .quantize import KINDS, is_quantized, quantize, weight_bytes

__all__ = ["KINDS", "is_quantized", "quantize", "weight_bytes"]
