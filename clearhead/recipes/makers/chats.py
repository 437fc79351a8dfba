"""Chats as training texts: messages in; ids, and which of them are an assistant's and to be learned, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import DataError
from ...text.chat import PLAIN, Message
from ...text.tokenizer import Tokenizer
from ..rows import Row

Flagged = tuple[list[int], list[int]]  # ids, and 1 where one is to be learned


def chats(tokenizer: Tokenizer, rows: Sequence[Row]) -> list[Flagged]:
    """By the template of the tokenizer; one without gets the plain one, and keeps it."""
    if tokenizer.chat_template is None:
        tokenizer.learn_chats(PLAIN)
    asked = [part for row in rows for part in _parts(row["messages"])]
    texts = iter(tokenizer.chats(asked))
    return [_flagged(tokenizer, row["messages"], texts) for row in rows]


def _parts(messages: Sequence[Message]) -> Iterator[tuple[Sequence[Message], bool]]:
    """For each answer: the chat up to where it begins, and up to where it ends."""
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            yield messages[:i], True
            yield messages[: i + 1], False


def _flagged(tokenizer: Tokenizer, messages: Sequence[Message], texts: Iterator[str]) -> Flagged:
    ids: list[int] = []
    flags: list[int] = []
    said = ""
    for message in messages:
        if message["role"] != "assistant":
            continue
        before, after = next(texts), next(texts)
        if not before.startswith(said) or not after.startswith(before):
            raise DataError(
                "the chat template writes earlier messages anew once an answer is there; what is to be "
                "learned cannot be told apart: use prompt and completion columns instead"
            )
        for text, flag in ((before[len(said) :], 0), (after[len(before) :], 1)):
            new = list(tokenizer.encode(text, specials=False).ids)
            ids, flags = ids + new, flags + [flag] * len(new)
        said = after
    return ids, flags
