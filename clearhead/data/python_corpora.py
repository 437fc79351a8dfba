"""Text that every machine has: the running interpreter's standard library in, help topics, sources and
docstrings out. Files are read and parsed, never imported.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import DataError
from .documents import split_by_hash

Splits = dict[str, list[dict[str, Any]]]
CODE_CHARACTERS = 4_000_000  # characters of source; the library has several times as many
DOCSTRING_CHARACTERS = 10_000_000  # few functions have a docstring
MAX_FILE_CHARACTERS = 100_000  # characters of one file; beyond that it is a table
SKIPPED = {
    "test",
    "tests",
    "idlelib",
    "site-packages",
    "dist-packages",
    "lib2to3",
    "__pycache__",
    "turtledemo",
}


def topics(seed: int) -> Splits:
    """What `help("FUNCTIONS")` prints."""
    try:
        from pydoc_data.topics import topics as texts
    except ImportError:
        raise DataError("this Python came without pydoc_data; install the full standard library") from None
    rows = ({"text": text.strip(), "topic": name} for name, text in sorted(texts.items()))
    return split_by_hash(rows, "text", one_in=8)


def code(seed: int) -> Splits:
    """A sample of the source files, the same for a version of Python."""
    rows = ({"text": text, "path": name} for name, text in _sources(CODE_CHARACTERS))
    return split_by_hash(rows, "text", one_in=12)


def docstrings(seed: int) -> Splits:
    """The first paragraph of a function's docstring -> its signature."""
    rows = (pair for _, text in _sources(DOCSTRING_CHARACTERS) for pair in _pairs(text))
    return split_by_hash(rows, "src", one_in=12)


def _sources(max_characters: int) -> Iterator[tuple[str, str]]:
    """Files in the order of the hash of their names, so that the sample is spread over the library."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = [
        path.relative_to(root)
        for path in root.rglob("*.py")
        if SKIPPED.isdisjoint(path.relative_to(root).parts)
    ]
    if not paths:
        raise DataError("the sources of this Python's standard library are not there; install them")
    total = 0
    for path in sorted(paths, key=lambda path: hashlib.sha256(path.as_posix().encode()).digest()):
        try:
            with tokenize.open(root / path) as file:  # respects the coding line
                text = file.read(MAX_FILE_CHARACTERS + 1)
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        if text.strip() and len(text) <= MAX_FILE_CHARACTERS:
            yield path.as_posix(), text
            total += len(text)
        if total > max_characters:
            return


def _pairs(text: str) -> Iterator[dict[str, str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in their source
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            if 10 <= len(first) <= 400:
                returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
                yield {"src": first, "tgt": f"{word} {node.name}({ast.unparse(node.args)}){returns}:"}
