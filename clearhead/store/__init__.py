"""Weights and disk: folders in, checkpoints out, and the way back."""

from .folder import Checkpoint, read
from .hub import resolve
from .tensors import Tensors
from .write import write

__all__ = ["read", "write", "resolve", "Checkpoint", "Tensors"]
