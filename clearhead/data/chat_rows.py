"""Chats as people have them in their files (OpenAI, TRL, ShareGPT, Alpaca) in; one canonical form out.

That form is {"messages": [...], "tools": [...]}, the latter only if there are some. A message has a role, its
content, and what else templates read of it: tool_calls, tool_call_id, name, reasoning_content. An assistant
message with "weight": 0 is context; all others are trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import DataError
from .cells import BlankError, Columns, as_text, cell_value, optional_cell, texts_reader
from .source import Row

CHAT_ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
    "bot": "assistant", "model": "assistant", "function_call": "assistant", "system": "system",
    "developer": "system", "tool": "tool", "observation": "tool", "function": "tool",
}  # fmt: skip
# What templates read of a message beside its role and content; other keys (ids, dates) are left out.
MESSAGE_KEYS = ("name", "tool_call_id", "reasoning_content", "reasoning", "thinking")


def is_trained(message: Row) -> bool:
    """Whether this is an answer that is learned."""
    return bool(message["role"] == "assistant" and message.get("weight", 1))


def message_text(message: Row) -> str:
    """All that a message says: reasoning, content, and the functions it calls as JSON."""
    calls = [json.dumps(call, ensure_ascii=False) for call in message.get("tool_calls") or ()]
    parts = (message.get("reasoning_content"), message["content"], *calls)
    return "\n".join(part for part in parts if part)


def messages_reader(role: str, role_key: str, content_key: str) -> Callable[[Row, Columns], Row]:
    """A reader of lists of messages whose role and content are under these keys."""

    def read(row: Row, columns: Columns) -> Row:
        messages = _messages(cell_value(row, columns[role], role), role, role_key, content_key)
        return _chat(messages, row, columns)

    return read


def read_prompt_chat(row: Row, columns: Columns) -> Row:
    """A prompt and a completion, each a text or a list of messages: what the prompt holds is context."""
    sides = {}
    for role, speaker in (("prompt", "user"), ("completion", "assistant")):
        value = cell_value(row, columns[role], role)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            sides[role] = _messages(value, role, "role", "content")
        else:
            text = as_text(value, role)
            if not text.strip():
                raise BlankError(f"{role} is empty")
            sides[role] = [{"role": speaker, "content": text}]
    context = [{**m, "weight": 0} if m["role"] == "assistant" else m for m in sides["prompt"]]
    if not any(message["role"] == "assistant" for message in sides["completion"]):
        raise DataError("completion has no message of the assistant; expected the answer that is learned")
    return _chat([*context, *sides["completion"]], row, columns)


def read_alpaca(row: Row, columns: Columns) -> Row:
    """Instruction and input on two lines, as LLaMA-Factory joins them."""
    texts = texts_reader("instruction", "output")(row, columns)
    more = as_text(optional_cell(row, columns, "input"), "input")
    prompt = f"{texts['instruction']}\n{more}" if more.strip() else texts["instruction"]
    return {"prompt": prompt, "completion": texts["output"]}


def read_alpaca_chat(row: Row, columns: Columns) -> Row:
    """Alpaca with a system prompt, or with earlier questions and answers: [[question, answer], ...]."""
    last = read_alpaca(row, columns)
    turns = optional_cell(row, columns, "history") or []
    if not isinstance(turns, list) or not all(isinstance(turn, list) and len(turn) == 2 for turn in turns):
        raise DataError("history is no list of pairs; expected [[question, answer], ...]")
    messages = []
    for question, answer in [*turns, [last["prompt"], last["completion"]]]:
        messages += [{"role": "user", "content": as_text(question, "history")}]
        messages += [{"role": "assistant", "content": as_text(answer, "history")}]
    return _chat(messages, row, columns)


def _chat(messages: list[Row], row: Row, columns: Columns) -> Row:
    """Messages with the system prompt and the tools of their row."""
    system = as_text(optional_cell(row, columns, "system"), "system")
    if system.strip() and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": system}, *messages]
    answers = [message for message in messages if message["role"] == "assistant" and _says_something(message)]
    if not answers:
        raise BlankError("it has no assistant message")
    if not any(map(is_trained, answers)):
        raise BlankError("all its assistant messages have weight 0")
    tools = _tools(optional_cell(row, columns, "tools"))
    return {"messages": messages} | ({"tools": tools} if tools else {})


def _says_something(message: Row) -> bool:
    return bool(message.get("tool_calls") or (message["content"] or "").strip())


def _messages(turns: Any, role: str, role_key: str, content_key: str) -> list[Row]:
    if not turns:
        raise BlankError(f"{role} is empty")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise DataError(f"{role} holds a {type(turns).__name__}; expected a list of objects")
    return [_message(turn, role_key, content_key) for turn in turns]


def _message(turn: Row, role_key: str, content_key: str) -> Row:
    given = str(turn.get(role_key)).lower()
    role = CHAT_ROLES.get(given)
    if role is None:
        raise DataError(f"a message of {turn.get(role_key)!r:.40}; expected system, user, assistant or tool")
    content: str | None = as_text(_joined_parts(turn.get(content_key)), content_key)
    calls = _tool_calls(turn.get("tool_calls"))
    if given == "function_call" and not calls and (called := _called(content)):
        content, calls = None, called
    if calls and turn.get(content_key) is None:
        content = None  # what templates expect beside tool calls
    message: Row = {"role": role, "content": content}
    # Tables give every message all keys; those that it does not have are null.
    message |= {key: turn[key] for key in MESSAGE_KEYS if isinstance(turn.get(key), str)}
    if calls:
        message["tool_calls"] = calls
    if role == "assistant" and (weight := turn.get("weight")) is not None:
        if weight not in (0, 1):
            raise DataError(f"weight is {weight!r:.40}; expected 0, for context, or 1, to learn the answer")
        message |= {} if weight else {"weight": 0}
    return message


def _joined_parts(content: Any) -> Any:
    """A content in parts, [{"type": "text", "text": "hello"}], as one text."""
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "".join(texts) if texts and len(texts) == len(parts) else content


def _tool_calls(value: Any) -> list[Row]:
    """OpenAI's calls. Their arguments, a string of JSON there, are an object here: templates write it."""
    calls = _from_json(value)
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise DataError(f"tool_calls holds a {type(calls).__name__}; expected a list of objects")
    return [_with_arguments(call) for call in calls]


def _with_arguments(call: Row) -> Row:
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(f"a tool call is {call!r:.60}; expected {{'function': {{'name': ..., ...}}}}")
    arguments = function.get("arguments")
    with suppress(ValueError):  # a string that is no JSON stays one
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    rest = {key: value for key, value in call.items() if value is not None} if "function" in call else {}
    named = {"name": function["name"], "arguments": {} if arguments is None else arguments}
    return {"type": "function", **rest, "function": named}


def _called(content: str | None) -> list[Row]:
    """The calls that a ShareGPT message of `function_call` has in its text, if it is such JSON."""
    try:
        value = json.loads(content or "")
    except ValueError:
        return []
    calls = value if isinstance(value, list) else [value]
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        return []
    return [_with_arguments({"function": call}) for call in calls]


def _tools(value: Any) -> list[Row]:
    """A list of functions, or the same as a string of JSON; each in OpenAI's form."""
    tools = _from_json(value, "tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise DataError(f"tools holds a {type(tools).__name__}; expected a list of objects")
    bare = [tool for tool in tools if "function" not in tool and isinstance(tool.get("name"), str)]
    return [{"type": "function", "function": tool} if tool in bare else tool for tool in tools]


def _from_json(value: Any, role: str = "tool_calls") -> Any:
    """A value, or the one that a string of JSON holds; an empty list if there is nothing."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise DataError(f"{role} is {value!r:.40}; expected a list of objects, or JSON of one") from None
    return [] if value is None or value == "" or value == {} else value
