"""Text <-> ids. A tokenizer never meets a tensor; nothing here imports torch."""

from .pieces import Encoding, Piece
from .tokenizer import Special, Tokenizer

__all__ = ["Tokenizer", "Encoding", "Piece", "Special"]
