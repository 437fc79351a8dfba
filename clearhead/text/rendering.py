"""Rendering a chat template, in a process of its own: template and chats in on stdin, their texts on stdout.

A template comes with a checkpoint, so it is untrusted code. It runs in jinja2's sandbox, which
keeps it from files and from Python; because the sandbox does not limit time or memory, the process has
limits on time, memory and output, and can be killed. Run as a script, this file imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

MEMORY = 256 << 20  # bytes, plus MEMORY_FACTOR times the input
MEMORY_FACTOR = 16
SECONDS = 2  # of CPU time, for one chat
CHATS_PER_SECOND = 50  # further chats that add one second each
MAX_OUTPUT_LENGTH = 4 << 20  # characters of output


def main() -> None:
    data = sys.stdin.read()
    request = json.loads(data)
    _limit_resources(MEMORY + MEMORY_FACTOR * len(data), len(request["chats"]))
    texts: list[str] = []
    try:
        template = compile_template(request["template"])
        for values in request["chats"]:
            texts.append(render(template, values))
    except MemoryError:
        _fail("it wants more memory than a conversation can need", len(texts))
    except RecursionError:
        _fail("it calls itself without end", len(texts))
    except Exception as error:  # whatever a template raises, on purpose or not
        _fail(f"{type(error).__name__}: {error}", len(texts))
    json.dump(texts, sys.stdout)


def compile_template(template: str) -> Any:
    """With the settings Hugging Face's templates expect: trimmed blocks, break and continue, tojson, ..."""
    from jinja2.exceptions import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **style: Any) -> str:  # noqa: FBT001, FBT002
        return json.dumps(
            value, ensure_ascii=ensure_ascii, **style
        )  # unlike jinja's own, without HTML escapes

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _generation_tag()]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda style: datetime.now().strftime(style)
    return environment.from_string(template)


def render(template: Any, values: dict[str, Any]) -> str:
    """The text of one chat. A compiled template may render many, none of which sees another."""
    parts: list[str] = []
    size = 0
    for part in template.generate(**values):
        size += len(part)
        if size > MAX_OUTPUT_LENGTH:
            raise ValueError(f"it produces more than {MAX_OUTPUT_LENGTH:,} characters")
        parts.append(part)
    return "".join(parts)


def _generation_tag() -> type:
    """`{% generation %}` marks assistant turns; here it is only its content."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 (jinja2 wants a set)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    return Generation


def _limit_resources(memory: int, chats: int) -> None:
    try:
        import resource
    except ImportError:  # not on Windows; there only the timeout of the parent process remains
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    seconds = SECONDS + chats // CHATS_PER_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _fail(why: str, chat: int) -> None:
    sys.stderr.write(f"chat {chat}: {' '.join(why.split())[:300]}")
    sys.exit(1)


if __name__ == "__main__":
    main()
