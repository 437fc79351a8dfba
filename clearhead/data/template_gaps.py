"""What a chat template does not write: a tokenizer and chats in; chats that it can write, and notes, out.

Many templates know only roles and contents. Tools and reasoning that a template ignores are noted; calls of
tools, which would be empty answers, are written as JSON into the content.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import LoadError
from ..text import Tokenizer
from .answers import OPENED
from .source import Row

PROBE_WORD = "probe_word"
QUESTION = {"role": "user", "content": "a"}
PROBE_FUNCTION = {"name": PROBE_WORD, "description": "a", "parameters": {"type": "object", "properties": {}}}
PROBE_TOOLS = [{"type": "function", "function": PROBE_FUNCTION}]
PROBE_CALL = {"id": "call00001", "type": "function", "function": {"name": PROBE_WORD, "arguments": {"a": 1}}}


def fill_template_gaps(tokenizer: Tokenizer, chats: Sequence[Row]) -> tuple[Sequence[Row], list[str]]:
    """The chats as the template can write them, and what it leaves out."""
    notes = []
    if any("tools" in chat for chat in chats) and not _writes(
        tokenizer, [QUESTION], reply=True, tools=PROBE_TOOLS
    ):
        notes.append("the chat template does not write tools: the model does not see them")
    calling = {"role": "assistant", "content": None, "tool_calls": [PROBE_CALL]}
    if _has(chats, "tool_calls") and not _writes(tokenizer, [QUESTION, calling]):
        notes.append(
            "the chat template does not write tool_calls: they are JSON in the content of the answer"
        )
        chats = [{**chat, "messages": list(map(_with_calls_as_text, chat["messages"]))} for chat in chats]
    thinking = {"role": "assistant", "content": "a", "reasoning_content": PROBE_WORD}
    if _has(chats, "reasoning_content") and not _writes(tokenizer, [QUESTION, thinking]):
        opened = OPENED.search(tokenizer.chat([QUESTION]))
        if opened is None or opened[2]:  # otherwise the reasoning is put behind the prompt's <think>
            notes.append("the chat template does not write reasoning_content: it is not trained")
    return chats, notes


def _has(chats: Sequence[Row], key: str) -> bool:
    return any(key in message for chat in chats for message in chat["messages"])


def _writes(
    tokenizer: Tokenizer, messages: list[Any], *, reply: bool = False, tools: list[Any] | None = None
) -> bool:
    try:
        return PROBE_WORD in tokenizer.chat(messages, reply=reply, tools=tools)
    except LoadError:  # such a message is more than it can render
        return False


def _with_calls_as_text(message: Row) -> Row:
    if "tool_calls" not in message:
        return message
    calls = (json.dumps(call["function"], ensure_ascii=False) for call in message["tool_calls"])
    content = "\n".join(part for part in (message["content"], *calls) if part)
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": content}
