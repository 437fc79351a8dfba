"""Generating: a model and a beginning in, ids out. Generators deal in ids, never in text."""

from .greedy import answer

__all__ = ["answer"]
