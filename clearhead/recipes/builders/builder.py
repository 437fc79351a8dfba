"""What a task builder is, and what all of them need of a tokenizer: special ids, sizes, texts as ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ...bundle import Bundle
from ...data import Row
from ...families import HeadKind as Head
from ...nn import Model
from ...tasks import SpecialIds, Task
from ...text import Encoding, Tokenizer
from ..rows import Dataset
from ..settings import RunConfig

# The ids of our own tokenizers, for a tokenizer that does not name a special token.
DEFAULT_PAD, DEFAULT_BOS, DEFAULT_EOS, DEFAULT_MASK = 0, 1, 2, 4


@dataclass(frozen=True)
class BuiltTask:
    task: Task[Any]
    head: Head
    config: dict[str, Any]  # the part of the model config that the data decide: vocabulary size, labels
    generation: dict[str, Any] = field(default_factory=dict)  # generation_config.json
    pooling: dict[str, Any] | None = None  # how the sentence vectors of the task are pooled
    problem_type: str | None = None  # what the outputs of a head for labels mean, in transformers' words

    @property
    def labels(self) -> list[str] | None:
        """The names of the classes, for heads that have such."""
        names = self.config.get("id2label")
        return list(names.values()) if names and self.head in ("labels", "tags") else None


@dataclass(frozen=True)
class ModelNeed:
    """Which models can learn a task."""

    accepts: Callable[[Model], bool]
    description: str


NEEDS_ENCODER_DECODER = ModelNeed(
    lambda spec: spec.is_encoder_decoder, "an encoder and a decoder, such as T5, BART or mBART"
)
NEEDS_DECODER = ModelNeed(
    lambda spec: spec.generates and not spec.is_encoder_decoder, "a decoder, such as GPT-2 or LLaMA"
)
NEEDS_ENCODER = ModelNeed(
    lambda spec: not spec.decodes and spec.source_tower is None, "an encoder, such as BERT or RoBERTa"
)
NEEDS_ONE_STACK = ModelNeed(
    lambda spec: not spec.is_encoder_decoder, "a model with one stack, such as BERT or GPT-2"
)


@dataclass(frozen=True)
class TaskBuilder:
    """How a task is built, and how a tokenizer for it is trained where the model has none."""

    build: Callable[[RunConfig, Dataset, Tokenizer, list[str]], BuiltTask]  # the list collects notes
    needs: ModelNeed = NEEDS_ONE_STACK
    frame: Literal["none", "eos", "bos-eos", "cls-sep"] = "none"  # special tokens around an encoded text
    lower: bool = False


class TypedIds(NamedTuple):
    """One text, or two side by side: ids, and which of the texts each belongs to."""

    ids: list[int]
    types: list[int] | None


def special_ids(tokenizer: Tokenizer, base: Bundle | None = None) -> SpecialIds:
    """The ids that batches are made with: those of the model to fine-tune, else those of the tokenizer."""
    settings = {**base.config, **base.generation} if base is not None else {}
    limit = settings.get("vocab_size") or math.inf

    def id_of(name: str, key: str, default: int) -> int:
        special, stored = getattr(tokenizer, name), settings.get(key)
        stored = stored[0] if isinstance(stored, list) and stored else stored
        if isinstance(stored, int) and stored < limit:  # a default may be beyond a small vocabulary
            return stored
        return special.id if special is not None else default

    end = id_of("eos", "eos_token_id", DEFAULT_EOS)
    return SpecialIds(
        pad=id_of("pad", "pad_token_id", end if base is not None else DEFAULT_PAD),
        start=id_of("bos", "decoder_start_token_id", DEFAULT_BOS),
        end=end,
    )


def config_of(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = special_ids(tokenizer)
    return {
        "vocab_size": tokenizer.vocab,
        "pad_token_id": ids.pad,
        "bos_token_id": ids.start,
        "eos_token_id": ids.end,
    }


def encode_all(tokenizer: Tokenizer, texts: Sequence[str], *, specials: bool = True) -> list[list[int]]:
    return [list(encoding.ids) for encoding in tokenizer.encode_batch(texts, specials=specials)]


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    seconds: Sequence[str] | None,
    length: int,
    split: str,
    notes: list[str],
) -> list[TypedIds]:
    """Texts, or pairs of texts, with their special tokens, cut to `length`; the number cut is noted."""
    encodings = encode_cut(tokenizer, texts, seconds, length, split, notes)
    return [TypedIds(list(each.ids), list(each.types) if any(each.types) else None) for each in encodings]


def encode_cut(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    seconds: Sequence[str] | None,
    length: int,
    split: str,
    notes: list[str],
    what: str = "texts",
) -> list[Encoding]:
    """Encodings of at most `length` tokens; the longer of two texts is cut first, special tokens stay."""
    encodings = tokenizer.encode_batch(texts, seconds, max_length=length)
    if too_long := sum(encoding.cut > 0 for encoding in encodings):
        notes.append(f"{split}: {too_long:,} of {len(texts):,} {what} cut to {length} tokens")
    return encodings


def common_arguments(run: RunConfig, rows: Dataset) -> dict[str, Any]:
    return {"seed": run.train.seed, "parts": run.train.micro, "fingerprint": rows.hashes}


def batch_limits(run: RunConfig, texts: int = 2) -> dict[str, Any]:
    """How large a batch may be: in padded tokens, or in rows of this many texts of full length."""
    if run.data.batch_size is None:
        return {"tokens": max(run.data.tokens, texts * run.data.length if texts > 2 else 0)}
    return {"tokens": texts * run.data.batch_size * run.data.length, "rows": run.data.batch_size}


def cut_into_pieces(
    tokenizer: Tokenizer, rows: Sequence[Row], length: int, *, specials: bool = True
) -> list[list[int]]:
    """Texts cut into pieces of at most `length` tokens; pieces of three tokens or fewer are dropped."""
    pieces = []
    for ids in encode_all(tokenizer, [row["text"] for row in rows], specials=specials):
        pieces += [ids[at : at + length] for at in range(0, len(ids), length)]
    return [piece for piece in pieces if len(piece) > 3]
