"""Rows that a language model learns from: texts, prompts or chats in; ids out, with a flag for each id.

The flag says whether the loss counts a token: all of a plain text, the completion of a prompt, what the
assistant wrote in a chat. Prompts and chats are rendered by the tokenizer's own chat template. Without one, a
prompt and its completion stand on two lines, and a tokenizer that reads chats is given a plain template.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import DataError
from ..text import PLAIN_TEMPLATE, Message, Tokenizer
from .source import Row

FlaggedIds = tuple[list[int], list[int]]  # ids, and 1 for each id that is to be learned
PROMPT_COLUMNS = {"prompt": ("prompt", "completion"), "pair": ("src", "tgt")}


def encode_completions(form: str, rows: Sequence[Row], tokenizer: Tokenizer, end: int) -> list[FlaggedIds]:
    """`form` is text, prompt, pair or messages; `end` is the id of the end token."""
    if form == "text":
        encodings = tokenizer.encode_batch([row["text"] for row in rows])
        return [(list(encoding.ids), [1] * len(encoding.ids)) for encoding in encodings]
    if form == "messages":
        if tokenizer.chat_template is None:
            tokenizer.set_chat_template(PLAIN_TEMPLATE)
        return encode_chats(tokenizer, [row["messages"] for row in rows])
    columns = PROMPT_COLUMNS[form]
    pairs = [(row[columns[0]], row[columns[1]]) for row in rows]
    if tokenizer.chat_template is not None:
        return encode_chats(tokenizer, [_as_messages(*pair) for pair in pairs])
    start = _start_ids(tokenizer)
    prompts = tokenizer.encode_batch([f"{prompt}\n" for prompt, _ in pairs], specials=False)
    completions = tokenizer.encode_batch([completion for _, completion in pairs], specials=False)
    return [
        (
            [*start, *prompt.ids, *completion.ids, end],
            [0] * (len(start) + len(prompt.ids)) + [1] * (len(completion.ids) + 1),
        )
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def encode_chats(tokenizer: Tokenizer, chats: Sequence[Sequence[Message]]) -> list[FlaggedIds]:
    """Chats rendered by the tokenizer's template, which it must have."""
    prefixes = [prefix for chat in chats for prefix in _prefixes(chat)]
    texts = iter(tokenizer.chats(prefixes))  # all at once: templates are rendered in a process of its own
    return [_encode_chat(tokenizer, chat, texts) for chat in chats]


def _as_messages(prompt: str, completion: str) -> list[Message]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]


def _start_ids(tokenizer: Tokenizer) -> list[int]:
    """The special tokens that the tokenizer puts before a text, such as <s>."""
    ids = list(tokenizer.encode("").ids)
    return ids[:1] if tokenizer.bos is not None and ids[:1] == [tokenizer.bos.id] else []


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
