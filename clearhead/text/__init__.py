"""Text <-> ids. Tokenizers do not use tensors; nothing here imports torch."""

from .batch import BatchEncoding
from .chat import PLAIN_TEMPLATE, Message, Tools
from .inputs import as_texts, check_texts
from .languages import language_id, language_tokens, with_language
from .legacy import TokenWithId, bos_eos_template
from .pieces import Encoding, Piece, unknown_note, unknown_words
from .streaming import Cutter, Detokenizer
from .tokenizer import Special, Tokenizer
from .training import train_tokenizer

__all__ = [
    "Tokenizer", "train_tokenizer", "Encoding", "BatchEncoding", "Piece", "Special",
    # for the other packages
    "as_texts", "check_texts", "Message", "Tools", "PLAIN_TEMPLATE", "TokenWithId", "bos_eos_template",
    "unknown_note", "unknown_words", "Cutter", "Detokenizer", "language_id", "language_tokens",
    "with_language",
]  # fmt: skip
