"""Batches: the ids of several texts in; padded rows by the names that models of transformers take out.

Nothing here imports torch: `return_tensors` names a library, which is imported only then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple

from tokenizers import Tokenizer as Engine

from ..errors import InputError, nearest
from .settings import Settings

Side = Literal["left", "right"]
TYPES = "token_type_ids"
# Tokenizer classes of transformers whose models read segment types; files rarely say so themselves.
WITH_TYPES = {"Albert", "Bert", "Deberta", "DebertaV2", "Electra", "FNet", "MobileBert"}
UNSPECIFIC = {"", "PreTrainedTokenizer", "Tokenizers"}  # classes that any tokenizer.json may be read with
LIBRARIES = {"pt": "torch", "np": "numpy"}


class BatchEncoding(dict[str, Any]):
    """The inputs of a model by name, also as attributes: `model(**batch)`, `batch.input_ids`."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"this batch has no {name!r}; it has {', '.join(self)}")
        return self[name]

    def to(self, device: Any) -> BatchEncoding:
        """The same tensors on another device."""
        if not all(hasattr(value, "to") for value in self.values()):
            raise InputError("only tensors can be moved to a device; give return_tensors='pt'")
        return BatchEncoding({name: value.to(device) for name, value in self.items()})


class BatchStyle(NamedTuple):
    """How the checkpoint wants its batches: the sides of padding and truncation, and segment types."""

    padding_side: Side
    truncation_side: Side
    types: bool
    max_length: int | None

    @classmethod
    def of(cls, settings: Settings, engine: Engine, *, cls_token: bool) -> BatchStyle:
        names = settings.config.get("model_input_names")
        kind = str(settings.config.get("tokenizer_class") or "").removesuffix("Fast")
        kind = kind if kind in UNSPECIFIC else kind.removesuffix("Tokenizer")
        if isinstance(names, list):
            types = TYPES in names
        elif kind in UNSPECIFIC:
            # As BERT's: a token for the whole text, and two texts that differ in their types.
            types = cls_token and _pair_has_types(engine)
        else:
            types = kind in WITH_TYPES
        return cls(
            _side(settings.config.get("padding_side")),
            _side(settings.config.get("truncation_side")),
            types,
            settings.model_max_length,
        )


@dataclass(frozen=True)
class BatchSettings:
    """The checked arguments of a call."""

    style: BatchStyle
    pad: int | None  # id of the padding token; None: rows are not padded
    pad_to: int | None  # None: to the longest row
    truncate_to: int | None
    tensors: str | None

    @classmethod
    def read(
        cls,
        style: BatchStyle,
        *,
        padding: bool | str,
        truncation: bool | str,
        max_length: int | None,
        tensors: str | None,
        pad: int | None,
    ) -> BatchSettings:
        _check_word("padding", padding, ("longest", "max_length", "do_not_pad"))
        _check_word("truncation", truncation, ("longest_first", "do_not_truncate"))
        _check_word("return_tensors", tensors, tuple(LIBRARIES))
        if max_length is not None and (isinstance(max_length, bool) or max_length < 1):
            raise InputError(f"max_length is {max_length}, expected 1 or more")
        pads = padding not in (False, "do_not_pad")
        cuts = truncation not in (False, "do_not_truncate")
        limit = max_length if max_length is not None else style.max_length
        if limit is None and (cuts or padding == "max_length"):
            raise InputError("this checkpoint names no longest text (model_max_length); give max_length")
        if pads and pad is None:
            raise InputError(
                "this tokenizer has no padding token; leave padding out, or encode texts one by one"
            )
        return cls(
            style,
            pad if pads else None,
            limit if padding == "max_length" else None,
            limit if cuts else None,
            tensors,
        )

    def batch(
        self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]], *, single: bool
    ) -> BatchEncoding:
        """Rows by name, padded. A single text without tensors gives plain lists."""
        length = 0 if self.pad is None else self.pad_to or max(map(len, ids), default=0)
        rows = {"input_ids": self._padded(ids, self.pad or 0, length)}
        if self.style.types:
            rows[TYPES] = self._padded(types, 0, length)
        rows["attention_mask"] = self._padded([[1] * len(row) for row in ids], 0, length)
        if self.tensors is None:
            return BatchEncoding({name: each[0] if single else each for name, each in rows.items()})
        lengths = {len(row) for row in rows["input_ids"]}
        if len(lengths) > 1:
            raise InputError(
                f"the texts are {min(lengths)} to {max(lengths)} tokens long, which is no rectangle; "
                f"give padding=True"
            )
        library = import_module(LIBRARIES[self.tensors])
        make = library.tensor if self.tensors == "pt" else library.array
        return BatchEncoding({name: make(each, dtype=library.int64) for name, each in rows.items()})

    def _padded(self, rows: Sequence[Sequence[int]], value: int, length: int) -> list[list[int]]:
        """Rows that are longer stay as they are."""
        fill = [[value] * (length - len(row)) for row in rows]
        if self.style.padding_side == "left":
            return [[*more, *row] for row, more in zip(rows, fill, strict=True)]
        return [[*row, *more] for row, more in zip(rows, fill, strict=True)]


def longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens of one text or of two fit: the longer one is cut first, then both to the same length.

    An odd token goes to the longer one, as in the `tokenizers` library.
    """
    if room < 0:
        raise InputError("max_length leaves no room for the special tokens; give a larger one")
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    short, long = sorted(lengths)
    if short + long > room:
        short = min(short, room // 2)
        long = room - short
    return [long, short] if lengths[0] > lengths[1] else [short, long]


def _pair_has_types(engine: Engine) -> bool:
    post = engine.post_processor
    if post is None:
        return False
    state = json.loads(post.__getstate__())
    for part in state.get("processors", [state]):
        if part.get("type") == "BertProcessing":
            return True
        for piece in part.get("pair") or ():
            if any(value.get("type_id") == 1 for value in piece.values()):
                return True
    return False


def _side(value: object) -> Side:
    return "left" if value == "left" else "right"


def _check_word(name: str, value: object, known: Sequence[str]) -> None:
    if isinstance(value, str) and value not in known:
        raise InputError(f"{name} is {value!r}; {nearest(value, known)}")
    if not isinstance(value, str | bool) and value is not None:
        raise InputError(f"{name} is {value!r}; expected {', '.join(known)}")
