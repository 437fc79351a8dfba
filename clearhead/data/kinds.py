"""Kinds of rows: a raw row and the columns that play its roles in, one canonical row out; or what is wrong.

The canonical forms are seven: {text}, {src, tgt}, {prompt, completion}, {messages}, {text, second, label},
{tokens, tags}, {question, context, answers}. Alpaca rows become prompts, ShareGPT rows become messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import DataError
from .source import Row

Columns = Mapping[str, str]  # role -> column
SPEAKERS = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
    "bot": "assistant", "model": "assistant", "system": "system", "developer": "system", "tool": "tool",
}  # fmt: skip


class BlankError(DataError):
    """A row with nothing in it: it is left out. Any other fault must be mended."""


class Kind(NamedTuple):
    name: str
    form: str  # the canonical form
    roles: tuple[str, ...]
    read: Callable[[Row, Columns], Row]
    optional: tuple[str, ...] = ()


def _text(row: Row, columns: Columns, role: str) -> Row:
    """One role as text; numbers are written out, a list of lines is joined."""
    value = _value(row, columns[role], role)
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        if len(value) > 1 and role in ("tgt", "completion"):
            raise DataError(f"{role} holds {len(value)} texts; expected one")
        value = "\n".join(value)
    if value is None:
        value = ""
    number = isinstance(value, float) and not math.isfinite(value)  # JSON's NaN is an empty cell, not a word
    if number or isinstance(value, bool | list | dict) or not isinstance(value, str | int | float):
        raise DataError(f"{role} holds a {type(value).__name__}; expected text")
    text = str(value)
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise DataError(f"{role} holds half a character (a lone surrogate); it was decoded wrongly")
    return {role: text}


def _value(row: Row, column: str, role: str) -> Any:
    if column in row:
        return row[column]
    outer, _, inner = column.partition(".")  # {"translation": {"en": ..., "zh": ...}}
    if isinstance(row.get(outer), dict) and inner in row[outer]:
        return row[outer][inner]
    raise DataError(
        f"there is no {column} in it" if column == role else f"there is no {column} ({role}) in it"
    )


def _texts(*roles: str) -> Callable[[Row, Columns], Row]:
    def read(row: Row, columns: Columns) -> Row:
        texts = {role: value for name in roles for role, value in _text(row, columns, name).items()}
        for role, text in texts.items():
            if not text.strip():
                raise BlankError(f"{role} is empty")
        return texts

    return read


def _alpaca(row: Row, columns: Columns) -> Row:
    texts = _texts("instruction", "output")(row, columns)
    more = _text(row, columns, "input")["input"] if "input" in columns else ""
    asked = f"{texts['instruction']}\n\n{more}" if more.strip() else texts["instruction"]
    return {"prompt": asked, "completion": texts["output"]}


def _messages(role: str, speaker: str, words: str) -> Callable[[Row, Columns], Row]:
    def read(row: Row, columns: Columns) -> Row:
        turns = _value(row, columns[role], role)
        if not turns:
            raise BlankError(f"{role} is empty")
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise DataError(f"{role} holds a {type(turns).__name__}; expected a list of objects")
        messages = [_message(turn, speaker, words) for turn in turns]
        if not any(m["role"] == "assistant" and m["content"].strip() for m in messages):
            raise BlankError("no assistant says anything in it")
        return {"messages": messages}

    return read


def _message(turn: Row, speaker: str, words: str) -> Row:
    who = SPEAKERS.get(str(turn.get(speaker)).lower())
    if who is None:
        raise DataError(f"a message of {turn.get(speaker)!r:.40}; expected system, user, assistant or tool")
    return {"role": who, "content": _text({words: turn.get(words)}, {words: words}, words)[words]}


def _label(row: Row, columns: Columns) -> Row:
    read = _texts(*(role for role in ("text", "second") if role in columns))(row, columns)
    value = _value(row, columns["label"], "label")
    if value is None or value == "":
        raise BlankError("label is empty")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int):
        raise DataError(f"label is {value!r:.40}; expected a word or a whole number")
    return read | {"label": str(value)}


def _tags(row: Row, columns: Columns) -> Row:
    lists = {}
    for role in ("tokens", "tags"):
        value = _value(row, columns[role], role)
        value = value.split() if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
            raise DataError(f"{role} holds a {type(value).__name__}; expected a list of words")
        lists[role] = [str(each) for each in value]
    if not lists["tokens"]:
        raise BlankError("tokens is empty")
    if len(lists["tokens"]) != len(lists["tags"]):
        raise DataError(
            f"{len(lists['tokens'])} tokens and {len(lists['tags'])} tags; expected as many of each"
        )
    return lists


def _answer(row: Row, columns: Columns) -> Row:
    texts = _texts("question", "context")(row, columns)
    given = _value(row, columns["answers"], "answers")
    if isinstance(given, dict):  # lists side by side, as Hugging Face keeps them
        pairs = zip(given.get("text") or [], given.get("answer_start") or [], strict=False)
        given = [{"text": text, "answer_start": start} for text, start in pairs]
    given = [{"text": given}] if isinstance(given, str) else given or []  # none: it cannot be answered
    if not isinstance(given, list) or not all(
        isinstance(a, dict) and isinstance(a.get("text"), str) for a in given
    ):
        raise DataError("answers holds something else than texts and where they start in the context")
    return texts | {"answers": [_span(answer, texts["context"]) for answer in given]}


def _span(answer: Row, context: str) -> Row:
    text, start = answer["text"], answer.get("answer_start", answer.get("start"))
    start = context.find(text) if start is None else start
    if not isinstance(start, int) or start < 0 or context[start : start + len(text)] != text:
        raise DataError(f"the answer {text!r:.40} does not stand in the context where it should")
    return {"text": text, "start": start}


KINDS = {
    kind.name: kind
    for kind in (
        Kind("messages", "messages", ("messages",), _messages("messages", "role", "content")),
        Kind("sharegpt", "messages", ("conversations",), _messages("conversations", "from", "value")),
        Kind("tags", "tags", ("tokens", "tags"), _tags),
        Kind("answer", "answer", ("question", "context", "answers"), _answer),
        Kind("alpaca", "prompt", ("instruction", "output"), _alpaca, ("input",)),
        Kind("prompt", "prompt", ("prompt", "completion"), _texts("prompt", "completion")),
        Kind("pair", "pair", ("src", "tgt"), _texts("src", "tgt")),
        Kind("label", "label", ("text", "label"), _label, ("second",)),
        Kind("text", "text", ("text",), _texts("text")),
    )
}
