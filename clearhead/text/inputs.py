"""What people give a tokenizer: texts and ids in many forms in; lists of texts and of numbers out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import InputError, quoted
from .pieces import Encoding

IdsLike = Encoding | Sequence[int] | Any
"""Token ids: what `encode` gives, a list, or a tensor or array of one dimension."""


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """One text or several as a list."""
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping | bytes):
        raise InputError(f"expected a text or a list of texts; given {type(texts).__name__}")
    return list(texts)


def check_texts(texts: Iterable[str]) -> None:
    """Raise an error for what is no text, and for text that cannot be written as UTF-8."""
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"text must be a string; given {type(text).__name__}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            half = ord(text[error.start])
            raise InputError(
                f"character {error.start} of the text is U+{half:04X}, half of a pair; it was decoded wrongly"
            ) from None


def id_list(ids: IdsLike) -> list[int]:
    """IdsLike as a plain list. A tensor or an array is read without importing its library."""
    numbers = ids.ids if isinstance(ids, Encoding) else ids.tolist() if hasattr(ids, "tolist") else ids
    numbers = [numbers] if isinstance(numbers, int) else numbers
    if not isinstance(numbers, Iterable) or isinstance(numbers, str):
        raise InputError(f"decode takes token ids; given {quoted(ids)}")
    found: list[Any] = list(numbers)
    for number in found:
        if isinstance(number, list | tuple | Encoding) or getattr(number, "ndim", 0) > 0:
            raise InputError("decode takes the ids of one text; for several there is batch_decode")
        if not hasattr(number, "__index__") or isinstance(number, bool):
            raise InputError(f"decode takes token ids, which are whole numbers; given {quoted(number)}")
    return [int(number) for number in found]
