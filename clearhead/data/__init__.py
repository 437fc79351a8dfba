"""Files -> batches of plain numbers. Nothing here imports torch."""

from .augment import Augment, back_translate, read_lexicon
from .buckets import Buckets
from .check import Lengths, Report, check
from .corpora import CORPORA, Corpus, read_corpus
from .documents import documents
from .kinds import BlankError
from .order import batch, draws, key, noise, order
from .packing import Packed, Piece, pack
from .packing import plan as plan_rows
from .padding import pad
from .preview import preview
from .shapes import Shape, detect, parse_map
from .source import Memory, Source
from .sources import read_rows, read_splits
from .tally import numbered

__all__ = [
    "read_rows",
    "read_splits",
    "Source",
    "Memory",
    "CORPORA",
    "Corpus",
    "read_corpus",
    "detect",
    "Shape",
    "BlankError",
    "parse_map",
    "check",
    "Report",
    "Lengths",
    "preview",
    "numbered",
    "documents",
    "order",
    "batch",
    "key",
    "draws",
    "noise",
    "Buckets",
    "plan_rows",
    "pack",
    "Packed",
    "Piece",
    "pad",
    "Augment",
    "back_translate",
    "read_lexicon",
]
