"""Clearhead: every Transformer, one clear core."""

__version__ = "0.1.0"
