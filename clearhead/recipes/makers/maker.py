"""What a maker is, and what all of them ask of a tokenizer: its special ids, its sizes, texts as ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...families import Task as Head
from ...tasks.task import Task
from ...tasks.translate import Ids
from ...text.tokenizer import Tokenizer
from ..rows import Row, Rows
from ..settings import Run

PAD, BOS, EOS, MASK = 0, 1, 2, 4


@dataclass(frozen=True)
class Made:
    task: Task[Any]
    head: Head
    config: dict[str, Any]  # what the data decide about the model
    generation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Maker:
    make: Callable[[Run, Rows, Tokenizer, list[str]], Made]
    frame: Literal["none", "eos", "bos-eos", "cls-sep"] = "none"  # what stands around an encoded text
    lower: bool = False


def ids_of(tokenizer: Tokenizer) -> Ids:
    def number(name: str, otherwise: int) -> int:
        special = getattr(tokenizer, name)
        return special.id if special is not None else otherwise

    return Ids(pad=number("pad", PAD), start=number("bos", BOS), end=number("eos", EOS))


def sizes(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = ids_of(tokenizer)
    return {
        "vocab_size": tokenizer.vocab,
        "pad_token_id": ids.pad,
        "bos_token_id": ids.start,
        "eos_token_id": ids.end,
    }


def encoded(tokenizer: Tokenizer, texts: Sequence[str], *, specials: bool = True) -> list[list[int]]:
    return [list(encoding.ids) for encoding in tokenizer.encode_batch(texts, specials=specials)]


def common(run: Run, rows: Rows) -> dict[str, Any]:
    return {"seed": run.train.seed, "parts": run.train.micro, "fingerprint": rows.hashes}


def pieces(
    tokenizer: Tokenizer, rows: Sequence[Row], length: int, *, specials: bool = True
) -> list[list[int]]:
    """Texts as pieces of at most `length` tokens."""
    pieces = []
    for ids in encoded(tokenizer, [row["text"] for row in rows], specials=specials):
        pieces += [ids[at : at + length] for at in range(0, len(ids), length)]
    return [piece for piece in pieces if len(piece) > 3]
