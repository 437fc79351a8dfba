"""Chats as training texts: messages in; ids out, with a flag for those that the assistant wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...data import Row
from ...errors import DataError
from ...text import PLAIN_TEMPLATE, Message, Tokenizer

FlaggedIds = tuple[list[int], list[int]]  # ids, and 1 for each id that is to be learned


def encode_chats(tokenizer: Tokenizer, rows: Sequence[Row]) -> list[FlaggedIds]:
    """Chats rendered by the tokenizer's template. A tokenizer without one is given the plain template."""
    if tokenizer.chat_template is None:
        tokenizer.set_chat_template(PLAIN_TEMPLATE)
    prefixes = [prefix for row in rows for prefix in _prefixes(row["messages"])]
    texts = iter(tokenizer.chats(prefixes))  # all at once: templates are rendered in a process of its own
    return [_encode_chat(tokenizer, row["messages"], texts) for row in rows]


def _prefixes(messages: Sequence[Message]) -> Iterator[tuple[Sequence[Message], bool]]:
    """For each assistant message: the chat up to its beginning, and up to its end."""
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            yield messages[:i], True
            yield messages[: i + 1], False


def _encode_chat(tokenizer: Tokenizer, messages: Sequence[Message], texts: Iterator[str]) -> FlaggedIds:
    ids: list[int] = []
    flags: list[int] = []
    rendered = ""  # the chat so far
    for message in messages:
        if message["role"] != "assistant":
            continue
        before, after = next(texts), next(texts)
        if not before.startswith(rendered) or not after.startswith(before):
            raise DataError(
                "the chat template renders earlier messages differently once an answer follows, so the "
                "answers cannot be separated from the prompts: use prompt and completion columns instead"
            )
        # Only what the assistant wrote is learned; everything else is context.
        for text, flag in ((before[len(rendered) :], 0), (after[len(before) :], 1)):
            new = list(tokenizer.encode(text, specials=False).ids)
            ids, flags = ids + new, flags + [flag] * len(new)
        rendered = after
    return ids, flags
