"""`clearhead chat MODEL`: a conversation, formatted with the checkpoint's chat template."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import ClearheadError, InputError
from .console import ERR, print_json, write
from .decoding import NO_OPTIONS, DecodingOptions
from .opening import compile_operators, open_prepared
from .options import (
    NO_ADAPTER,
    AdapterOptions,
    CachePrecisionName,
    DeviceName,
    Keep,
    ModelThreads,
    PrecisionName,
    Set,
    edits,
)

if TYPE_CHECKING:
    from ..bundle import Bundle

HELP = "Enter sends. /new starts a new conversation, /help shows this, /quit or Ctrl-D ends."
QUIT = ("/quit", "/exit", "/bye", "quit", "exit")
MAX_NEW_TOKENS = 512  # default of --max-new-tokens


def chat(
    model: Annotated[str, Parameter(help="a folder, a Hub id, or a .gguf file of a chat model")],
    /,
    *,
    message: Annotated[
        str | None, Parameter(name=["--message", "-m"], help="send one message, print the reply, exit")
    ] = None,
    system: Annotated[str | None, Parameter(help="system message")] = None,
    decoding: DecodingOptions = NO_OPTIONS,
    over: AdapterOptions = NO_ADAPTER,
    set_: Set = None,
    precision: PrecisionName = None,
    cache_precision: CachePrecisionName = None,
    keep: Keep = False,
    device: DeviceName = None,
    threads_: ModelThreads = None,
    json: Annotated[bool, Parameter(negative="", help="JSON output; needs --message")] = False,
) -> None:
    """Chat with a model. The prompt is formatted with the checkpoint's chat template.

    Without a terminal, each line of stdin is a message and replies go to stdout.
    """
    if json and message is None:
        raise InputError("--json needs --message; a conversation is not one document")
    settings = decoding.settings()
    bundle = open_prepared(
        model,
        over=over,
        precision=precision,
        cache_precision=cache_precision,
        keep=keep,
        edit=edits(set_),
        device=device,
        threads=threads_,
    )
    compile_operators()
    if bundle.tokenizer is None or bundle.tokenizer.chat_template is None:
        raise InputError(f"{model} has no chat template, so it is not a chat model; use clearhead generate")
    first: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    if message is not None and json:
        answer = bundle.answer(
            [*first, {"role": "user", "content": message}], **_with_reply_length(bundle, settings)
        )
        assert not isinstance(answer, list)
        print_json(answer.to_dict())
        return
    _converse(bundle, first, _with_reply_length(bundle, settings), message)


def _converse(
    bundle: Bundle, first: list[dict[str, str]], settings: dict[str, Any], message: str | None
) -> None:
    """Turn by turn. On a terminal, a turn that fails or is interrupted does not end the conversation."""
    messages, interactive = list(first), message is None and sys.stdin.isatty()
    for line in _turns(message):
        if message is None and _is_command(line):
            if line == "/new":
                messages = list(first)
            ERR.print(_command_answer(line), style="dim", markup=False)
            continue
        messages.append({"role": "user", "content": line})
        try:
            reply = _reply(bundle, messages, settings)
        except (ClearheadError, KeyboardInterrupt) as error:
            if not interactive:
                raise
            ERR.print(f"\n{error}" if str(error) else "\nstopped", style="yellow", markup=False)
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": reply})


def _turns(message: str | None) -> Iterator[str]:
    """The user's messages, line by line."""
    if message is not None:
        yield message
        return
    if not sys.stdin.isatty():
        yield from takewhile(_goes_on, (line for line in map(str.strip, sys.stdin) if line))
        return
    with suppress(ImportError):  # not on Windows
        import readline  # noqa: F401  (arrows and history for input)
    ERR.print(HELP, style="dim")
    while True:
        try:
            line = input("› ").strip()
        except EOFError:
            ERR.print()
            return
        if not _goes_on(line):
            return
        if line:
            yield line


def _goes_on(line: str) -> bool:
    return line.lower() not in QUIT


def _is_command(line: str) -> bool:
    """A word after a slash; a path such as /etc/hosts, and a slash in a sentence, go to the model."""
    return line.startswith("/") and line[1:].isalpha()


def _command_answer(line: str) -> str:
    if line == "/new":
        return "a new conversation"
    return HELP if line == "/help" else f"there is no command {line}. {HELP}"


def _reply(bundle: Bundle, messages: list[dict[str, str]], settings: dict[str, Any]) -> str:
    pieces = []
    for piece in bundle.stream(messages, **settings):
        write(piece)
        pieces.append(piece)
    write("\n")
    return "".join(pieces)


def _with_reply_length(bundle: Bundle, settings: dict[str, Any]) -> dict[str, Any]:
    """A reply may be longer than a continuation, unless the checkpoint or the user sets the length."""
    from ..bundle import text_generator

    stored = {"max_new_tokens", "max_length"} & bundle.generation.keys()
    limit = text_generator(bundle, settings).max_length
    if stored or "max_new_tokens" in settings or limit is not None:
        return settings
    return {**settings, "max_new_tokens": MAX_NEW_TOKENS}
