"""What a task builder is, and what all of them need of a tokenizer: special ids, sizes, texts as ids."""

from __future__ import annotations

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


ENCODER_DECODER = ModelNeed(
    lambda spec: spec.is_encoder_decoder, "an encoder and a decoder, such as T5, BART or mBART"
)
DECODER = ModelNeed(
    lambda spec: spec.generates and not spec.is_encoder_decoder, "a decoder, such as GPT-2 or LLaMA"
)
ENCODER = ModelNeed(
    lambda spec: not spec.decodes and not spec.is_encoder_decoder, "an encoder, such as BERT or RoBERTa"
)
ONE_STACK = ModelNeed(
    lambda spec: not spec.is_encoder_decoder, "a model with one stack, such as BERT or GPT-2"
)


@dataclass(frozen=True)
class TaskBuilder:
    """How a task is built, and how a tokenizer for it is trained where the model has none."""

    build: Callable[[RunConfig, Dataset, Tokenizer, list[str]], BuiltTask]  # the list collects notes
    needs: ModelNeed = ONE_STACK
    frame: Literal["none", "eos", "bos-eos", "cls-sep"] = "none"  # special tokens around an encoded text
    lower: bool = False


class TypedIds(NamedTuple):
    """One text, or two side by side: ids, and which of the texts each belongs to."""

    ids: list[int]
    types: list[int] | None


def special_ids(tokenizer: Tokenizer, base: Bundle | None = None) -> SpecialIds:
    """The ids that batches are made with: those of the model to fine-tune, else those of the tokenizer."""
    settings = {**base.config, **base.generation} if base is not None else {}

    def id_of(name: str, key: str, default: int) -> int:
        special, stored = getattr(tokenizer, name), settings.get(key)
        stored = stored[0] if isinstance(stored, list) and stored else stored
        if isinstance(stored, int):
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
    encodings = tokenizer.encode_batch(texts, seconds)
    if too_long := sum(len(encoding) > length for encoding in encodings):
        notes.append(f"{split}: {too_long:,} of {len(texts):,} texts cut to {length} tokens")
    return [truncated(encoding, length) for encoding in encodings]


def truncated(encoding: Encoding, length: int) -> TypedIds:
    """The first tokens of each text; the longer of two is cut first, and special tokens stay."""
    kept = kept_tokens(encoding, length)
    types = [encoding.types[i] for i in kept]
    return TypedIds([encoding.ids[i] for i in kept], types if any(types) else None)


def kept_tokens(encoding: Encoding, length: int, cut_side: int | None = None) -> list[int]:
    """The indices of the tokens that are kept; `cut_side` 1 cuts only the second of two texts."""
    if len(encoding) <= length:
        return list(range(len(encoding)))
    sides: list[list[int]] = [[], []]
    for number, piece in enumerate(encoding.tokens):
        if piece.side is not None and not piece.special:
            sides[piece.side].append(number)
    for _ in range(len(encoding) - length):
        side = max(sides, key=len) if cut_side is None or not sides[cut_side] else sides[cut_side]
        if not side:
            break
        side.pop()
    taken = {*sides[0], *sides[1]}
    return [i for i, piece in enumerate(encoding.tokens) if piece.special or piece.side is None or i in taken]


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
