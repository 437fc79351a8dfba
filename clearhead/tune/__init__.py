"""Tuning: a model in; a leaner or a tunable one out."""

from .quantize import KINDS, is_quantized, quantize, weight_bytes

__all__ = ["KINDS", "is_quantized", "quantize", "weight_bytes"]
