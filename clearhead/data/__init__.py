"""Files -> batches of plain numbers. Nothing here imports torch."""

from .augment import Augment, back_translate, read_lexicon
from .buckets import Buckets, pad
from .cells import BlankError
from .chat_rows import is_trained, message_text
from .check import DataReport, LengthSummary, check_data
from .completions import (
    PROMPT_COLUMNS,
    CompletionExample,
    encode_completions,
    fit_examples,
    set_plain_template,
)
from .corpora import CORPORA, Corpus, read_corpus
from .corrupt import NOISES, MaskedIds, drop_spans, mask_words
from .detect import Schema, detect_schemas, parse_map
from .documents import documents, is_held_out, text_hash
from .languages import language_of
from .next_sentence import SentencePair, sentence_pairs, sentences
from .packing import IGNORE_INDEX, DocumentSlice, Packed, pack
from .packing import plan_rows as plan_rows
from .preview import preview, row_texts
from .schema import ROW_KINDS, split_of
from .shuffling import derive_seed, epoch_order, generator_for, hashed_numbers, rows_of_step
from .source import InMemorySource, Row, Source
from .sources import read_rows, read_splits
from .tally import format_row_numbers

__all__ = [
    "read_rows", "read_splits", "Source", "InMemorySource", "CORPORA", "Corpus", "read_corpus",
    "detect_schemas", "Schema", "BlankError", "parse_map", "check_data", "DataReport", "LengthSummary",
    "preview", "format_row_numbers", "documents", "epoch_order", "rows_of_step", "derive_seed",
    "generator_for", "hashed_numbers", "Buckets", "plan_rows", "pack", "Packed", "DocumentSlice", "pad",
    "Augment", "back_translate", "read_lexicon",
    # for the other packages
    "PROMPT_COLUMNS", "CompletionExample", "encode_completions", "fit_examples", "set_plain_template",
    "is_trained", "message_text", "language_of", "MaskedIds", "NOISES", "drop_spans", "mask_words",
    "is_held_out", "split_of", "text_hash", "SentencePair", "sentence_pairs", "sentences", "IGNORE_INDEX",
    "ROW_KINDS", "Row", "row_texts",
]  # fmt: skip
