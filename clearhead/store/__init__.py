"""Weights on disk: reading and writing checkpoint folders."""

from .folder import Checkpoint, read_folder
from .hub import resolve
from .tensors import Tensors
from .write import write_folder

__all__ = ["read_folder", "write_folder", "resolve", "Checkpoint", "Tensors"]
