"""Help is quick: no command imports torch or NumPy to describe its options."""

import json
import subprocess
import sys
from collections.abc import Iterator

from cyclopts import App

from clearhead.cli.main import app

HEAVY = ("torch", "numpy", "matplotlib", "tokenizers", "fastapi", "pyarrow")
PROGRAM = """
import contextlib, io, json, sys
from cyclopts import App
from clearhead.cli.main import app, main

def commands(app, words=()):
    for name in app:
        if not name.startswith("-"):
            yield (*words, name)
            yield from commands(app[name], (*words, name))

found = {}
for words in [(), *commands(app)]:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    found[" ".join(words)] = ["Usage: clearhead" in shown.getvalue(), [m for m in HEAVY if m in sys.modules]]
print(json.dumps(found))
"""


def test_no_command_imports_a_heavy_library_to_show_its_help() -> None:
    program = f"HEAVY = {HEAVY!r}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: dict[str, tuple[bool, list[str]]] = json.loads(done.stdout)
    assert len(found) > 25 and {"", "train", "bench decode", "learn clinic check"} <= set(found)
    assert [words for words, (shown, _) in found.items() if not shown] == []
    # The first that appears is the one to blame: all run in one process.
    assert {words: heavy for words, (_, heavy) in found.items() if heavy} == {}


def test_every_argument_of_every_command_has_a_sentence() -> None:
    missing = []
    for words, command in commands(app):
        if command.default_command is not None:
            arguments = command.assemble_argument_collection(parse_docstring=True)
            missing += [f"{' '.join(words)} {a.name}" for a in arguments if a.show and not a.parameter.help]
    assert missing == []


def commands(parent: App, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    for name in parent:
        if not name.startswith("-"):
            yield (*words, name), parent[name]
            yield from commands(parent[name], (*words, name))
