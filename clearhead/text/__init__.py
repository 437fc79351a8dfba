"""Text <-> ids. Tokenizers do not use tensors; nothing here imports torch."""

from .pieces import Encoding, Piece
from .tokenizer import Special, Tokenizer
from .training import train_tokenizer

__all__ = ["Tokenizer", "train_tokenizer", "Encoding", "Piece", "Special"]
