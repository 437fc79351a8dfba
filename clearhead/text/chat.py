"""Chats: messages and a checkpoint's template in, the text that its model expects out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, LoadError, quoted
from .rendering import CHATS_PER_SECOND

TIMEOUT = 10.0  # seconds by the clock, starting Python included
# For checkpoints that come without a template: role, colon, content; tools and their calls as JSON.
PLAIN_TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}{{ '\\n' }}{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content or '' }}"
    "{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
SCRIPT = Path(__file__).with_name("rendering.py")

Message = Mapping[str, Any]
"""`{"role": "user", "content": "hello"}`; a template may know further keys, such as tool_calls."""
Tools = Sequence[Mapping[str, Any]]
"""The functions that a model may call, each `{"type": "function", "function": {"name": ..., ...}}`."""


def render_chats(template: str, chats: Sequence[tuple[Sequence[Message], Mapping[str, Any]]]) -> list[str]:
    """Messages and values, rendered by the template in a process of its own: see rendering.py for why."""
    for messages, _ in chats:
        _check(messages)
    inputs = [{**values, "messages": list(messages)} for messages, values in chats]
    request = {"template": template, "chats": inputs}
    try:
        data = json.dumps(request).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"messages must consist of strings, numbers, lists and objects: {error}") from None
    try:
        # Isolated: no settings, paths or secrets of the calling process.
        result = subprocess.run(
            [sys.executable, "-I", str(SCRIPT)],
            input=data,
            capture_output=True,
            timeout=TIMEOUT + len(chats) / CHATS_PER_SECOND,
            env={
                name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ
            },  # Windows needs it
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"the chat template of this checkpoint did not finish within {TIMEOUT:g} s") from None
    if result.returncode != 0:
        why = (
            result.stderr.decode("utf-8", "replace").strip()
            or "it was stopped for using too much time or memory"
        )
        raise LoadError(f"the chat template of this checkpoint cannot be rendered: {_with_chat(why, chats)}")
    texts: list[str] = json.loads(result.stdout)
    return texts


def _with_chat(why: str, chats: Sequence[tuple[Sequence[Message], Mapping[str, Any]]]) -> str:
    """The reason, and of many chats the one that could not be rendered."""
    found = re.match(r"chat (\d+): ", why)
    number, why = (int(found[1]), why[found.end() :]) if found else (0, why)
    why = " ".join(why.split())[:200]
    if found is None or len(chats) < 2:
        return why
    return f"{why} (the chat that begins with {quoted(str(chats[number][0][0].get('content'))[:40])})"


def _check(messages: Any) -> None:
    if isinstance(messages, str) or not messages:
        raise InputError("a chat is a list of messages such as {'role': 'user', 'content': 'hello'}")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(f"a message is {{'role': ..., 'content': ...}}; given {str(message)[:60]}")
