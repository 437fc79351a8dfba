"""Answers of a chat: messages in; for each answer the ids that a model is fed when it is asked for, and the
ids it is to generate, out.

The first are those of `bundle.generate(messages)` and `clearhead chat`: the chat rendered up to the answer,
with the generation prompt, and encoded once. So a model is trained on exactly what it is given later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import DataError, quoted
from ..text import Message, Tokenizer, Tools
from .chat_rows import is_trained
from .source import Row

# A block of reasoning that a generation prompt opens, and perhaps closes: <think>, or <think></think>.
OPENED = re.compile(r"<(think\w*|thought|reason\w*)>\s*(</\1>\s*)?$")
# Characters that nothing merges with, put before a text so that it is encoded as one that continues another.
MARKERS = ("\n", ".", "-")


class ChatAnswer(NamedTuple):
    """An answer that is trained: the `place`-th message of a row."""

    row: int
    place: int
    context: list[int]
    ids: list[int]
    text: str


def chat_answers(tokenizer: Tokenizer, chats: Sequence[Row]) -> list[ChatAnswer]:
    """The trained answers of chats. One with nothing before it is none: generation needs a prompt."""
    places = [
        (number, place)
        for number, chat in enumerate(chats)
        for place, message in enumerate(chat["messages"])
        if place and is_trained(message)
    ]
    prompts = render_prefixes(tokenizer, [(chats[number], place, True) for number, place in places])
    wholes = render_prefixes(tokenizer, [(chats[number], place + 1, False) for number, place in places])
    texts = [
        answer_text(prompt, whole, chats[number]["messages"][place])
        for prompt, whole, (number, place) in zip(prompts, wholes, places, strict=True)
    ]
    return encode_answers(tokenizer, places, prompts, texts)


def encode_answers(
    tokenizer: Tokenizer, places: Sequence[tuple[int, int]], prompts: Sequence[str], texts: Sequence[str]
) -> list[ChatAnswer]:
    contexts = [encoding.ids for encoding in tokenizer.encode_batch(prompts, specials=False)]
    together = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    wholes = [encoding.ids for encoding in tokenizer.encode_batch(together, specials=False)]
    return [
        ChatAnswer(*place, context, continuation_ids(tokenizer, context, whole, text), text)
        for place, context, whole, text in zip(places, contexts, wholes, texts, strict=True)
    ]


def render_prefixes(tokenizer: Tokenizer, prefixes: Sequence[tuple[Row, int, bool]]) -> list[str]:
    """Chats up to a message, each with whether a generation prompt follows; all in one process."""
    chats = [(messages_for_template(chat)[:end], reply) for chat, end, reply in prefixes]
    tools: list[Tools | None] = [chat.get("tools") for chat, _, _ in prefixes]
    return tokenizer.chats(chats, tools) if chats else []


def messages_for_template(chat: Row) -> list[Message]:
    return [{key: value for key, value in m.items() if key != "weight"} for m in chat["messages"]]


def answer_text(prompt: str, whole: str, message: Row) -> str:
    """What the model generates after the prompt: of a chat, what the template writes after it.

    Some generation prompts open a block, `<think>`, that the template leaves out of the answers it writes.
    Such an answer has its reasoning put back, or none, and the block is closed.
    """
    if whole.startswith(prompt):
        return whole[len(prompt) :]
    opened = OPENED.search(prompt)
    answer = _text_behind(prompt[: opened.start()] if opened else prompt, whole, message)
    if opened is None:
        return answer
    tag = opened[1]
    block = re.match(rf"<{tag}>.*?</{tag}>\s*", answer, re.DOTALL)
    if opened[2]:  # the prompt has closed the block: an answer without reasoning
        return answer[block.end() :] if block else answer
    if block or f"</{tag}>" in answer:
        return answer.removeprefix(f"<{tag}>").lstrip()
    before, _, _ = (message["content"] or "").rpartition(f"</{tag}>")
    thought = message.get("reasoning_content") or before.strip().removeprefix(f"<{tag}>")
    return f"{thought.strip()}\n</{tag}>\n\n{answer}"


def _text_behind(header: str, whole: str, message: Row) -> str:
    """The answer behind a header, which the template may write differently once the answer follows."""
    if whole.startswith(header.rstrip()):  # only the space between them differs
        return whole[len(header.rstrip()) :].lstrip()
    content = (message["content"] or "").strip()
    shown = (content, content.rpartition("</think>")[2].strip())  # reasoning may be left out
    start = max((whole.rfind(text) for text in shown if text), default=-1)
    if start < 0:
        raise DataError(
            f"the chat template renders earlier messages differently once the answer {quoted(content[:30])} "
            f"follows, and the answer cannot be found in it: use prompt and completion columns instead"
        )
    return whole[start:]


def continuation_ids(
    tokenizer: Tokenizer, context: Sequence[int], whole: Sequence[int], text: str
) -> list[int]:
    """The ids of a text that continues another one, `context`; `whole` are the ids of both together.

    Where tokens of `whole` reach over the joint ("assistant: " and "It" have " It" in common), the text is
    encoded by itself: generation continues the ids it was given. Its first token may then lack a space that
    some tokenizers put before every text.
    """
    if list(whole[: len(context)]) == list(context):
        return list(whole[len(context) :])
    expected = tokenizer.decode(list(whole), specials=True)
    alone = tokenizer.encode(text, specials=False).ids
    candidates = (alone, *(found for mark in MARKERS if (found := _after(tokenizer, mark, text)) is not None))
    for ids in candidates:
        if tokenizer.decode([*context, *ids], specials=True) == expected:
            return list(ids)
    return list(alone)


def _after(tokenizer: Tokenizer, mark: str, text: str) -> list[int] | None:
    """The ids of a text behind a marker; None if they cannot be told from those of the marker."""
    pieces = tokenizer.encode(mark + text, specials=False).tokens
    if any(piece.start < len(mark) < piece.end for piece in pieces):
        return None
    return [piece.id for piece in pieces if piece.start >= len(mark)]
