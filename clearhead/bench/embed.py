"""Embedding speed of Clearhead in several precisions and sentence-transformers: one model, the same texts.

The quality of the vectors is reported, too: their cosine similarity with the peer's and, for rated pairs,
Spearman's rank correlation as in the SICK-R benchmark.
"""

from __future__ import annotations

import csv
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..bundle import load
from ..engine import InferencePrecision
from ..errors import InputError
from .timing import ProgressCallback, installed, measure_in_turns, quiet_libraries

EMBED_PEERS = ("sentence-transformers",)
Embedder = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True)
class RatedPair:
    """Two texts and their similarity as rated by people."""

    one: str
    two: str
    rating: float


@dataclass(frozen=True)
class EmbedBenchmark:
    speeds: dict[str, float]  # texts per second
    cosine: dict[str, float]  # smallest cosine similarity with the reference vector of the same text
    spearman: dict[str, float]  # times 100, if rated pairs were given
    peers: dict[str, str]
    missing: list[str]


def compare_embedding(
    folder: str,
    texts: Sequence[str],
    pairs: Sequence[RatedPair],
    precisions: Sequence[InferencePrecision],
    *,
    rounds: int,
    progress: ProgressCallback,
) -> EmbedBenchmark:
    peers, missing = installed(EMBED_PEERS)
    sides: dict[str, Embedder] = {}
    for precision in precisions:
        progress(f"opening clearhead {precision}")
        sides[f"clearhead {precision}"] = load(folder, precision=precision).embed
    if not missing:
        progress("opening sentence-transformers")
        sides["sentence-transformers"] = sentence_transformers(folder)
    speeds = measure_in_turns(
        {name: _text_counter(side, texts) for name, side in sides.items()}, rounds, progress
    )
    vectors = {name: side(texts) for name, side in sides.items()}
    reference = vectors["sentence-transformers"] if not missing else load(folder).embed(texts)
    cosine = {name: float(F.cosine_similarity(x, reference).min()) for name, x in vectors.items()}
    scores = {}
    for name, side in sides.items() if pairs else ():
        progress(f"ranking {len(pairs):,} pairs: {name}")
        scores[name] = rank_correlation(side, pairs)
    not_there = [f"{name} (not installed: pip install {name})" for name in missing]
    return EmbedBenchmark(speeds, cosine, scores, peers, not_there)


def sentence_transformers(folder: str) -> Embedder:
    with quiet_libraries():
        library: Any = import_module("sentence_transformers")
        model = library.SentenceTransformer(folder, local_files_only=True, device="cpu")
    return lambda texts: torch.from_numpy(model.encode(list(texts), show_progress_bar=False))


def rank_correlation(side: Embedder, pairs: Sequence[RatedPair]) -> float:
    """Spearman's correlation between the cosines of the pairs and their ratings, times 100."""
    texts = sorted({*chain.from_iterable((pair.one, pair.two) for pair in pairs)})
    index = {text: i for i, text in enumerate(texts)}
    vectors = F.normalize(side(texts), dim=-1)
    one, two = (torch.tensor([index[getattr(p, which)] for p in pairs]) for which in ("one", "two"))
    cosines = (vectors[one] * vectors[two]).sum(-1)
    ratings = torch.tensor([pair.rating for pair in pairs])
    return 100 * float(torch.corrcoef(torch.stack([_ranks(cosines), _ranks(ratings)]))[0, 1])


def read_rated_pairs(path: Path) -> list[RatedPair]:
    """Read a tab-separated file with a header, as of SICK: number, text, text, rating; may be .xz."""
    open_file = lzma.open if path.suffix == ".xz" else open
    try:
        with open_file(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
        return [RatedPair(row[1], row[2], float(row[3])) for row in rows]
    except (OSError, lzma.LZMAError, UnicodeDecodeError, IndexError, ValueError) as error:
        raise InputError(
            f"{path} is not a table of rated pairs (number, text, text, rating): {error}"
        ) from None


def _ranks(values: Tensor) -> Tensor:
    """Ranks from 0; ties get their mean rank."""
    unique: tuple[Tensor, Tensor, Tensor] = torch.unique(values, return_inverse=True, return_counts=True)
    _, inverse, counts = unique
    return (counts.cumsum(0) - (counts + 1) / 2)[inverse].double()


def _text_counter(side: Embedder, texts: Sequence[str]) -> Callable[[], int]:
    return lambda: len(side(texts))
