"""What a task builder is, and what all of them need of a tokenizer: special ids, sizes, texts as ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...data import Row
from ...families import HeadKind as Head
from ...tasks import SpecialIds, Task
from ...text import Tokenizer
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


@dataclass(frozen=True)
class TaskBuilder:
    """How a task is built, and how a tokenizer for it is trained where the model has none."""

    build: Callable[[RunConfig, Dataset, Tokenizer, list[str]], BuiltTask]  # the list collects notes
    frame: Literal["none", "eos", "bos-eos", "cls-sep"] = "none"  # special tokens around an encoded text
    lower: bool = False


def special_ids(tokenizer: Tokenizer) -> SpecialIds:
    def id_of(name: str, default: int) -> int:
        special = getattr(tokenizer, name)
        return special.id if special is not None else default

    return SpecialIds(
        pad=id_of("pad", DEFAULT_PAD), start=id_of("bos", DEFAULT_BOS), end=id_of("eos", DEFAULT_EOS)
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


def common_arguments(run: RunConfig, rows: Dataset) -> dict[str, Any]:
    return {"seed": run.train.seed, "parts": run.train.micro, "fingerprint": rows.hashes}


def batch_limits(run: RunConfig) -> dict[str, Any]:
    """How large a batch may be: in padded tokens, or in rows."""
    if run.data.batch_size is None:
        return {"tokens": run.data.tokens}
    return {"tokens": 2 * run.data.batch_size * run.data.length, "rows": run.data.batch_size}


def cut_into_pieces(
    tokenizer: Tokenizer, rows: Sequence[Row], length: int, *, specials: bool = True
) -> list[list[int]]:
    """Texts cut into pieces of at most `length` tokens; pieces of three tokens or fewer are dropped."""
    pieces = []
    for ids in encode_all(tokenizer, [row["text"] for row in rows], specials=specials):
        pieces += [ids[at : at + length] for at in range(0, len(ids), length)]
    return [piece for piece in pieces if len(piece) > 3]
