"""YAML: a file or a word in, a small tree of plain values out; or one line that says why not.

A few lines of YAML can stand for a tree of billions of nodes (names that stand for lists of names), and its
values may be dates, sets or bytes. Settings are none of this: at most ten thousand texts, numbers, lists and
mappings with names as keys.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml

from ..errors import InputError, quoted, reason
from ..readfile import read_regular

BYTES = 64 * 2**10  # of a file; the longest recipe has 2,000
NODES = 10_000
DEPTH = 50
LARGEST = 2**63
# What the library raises: its own errors, and those of Python for a number or a date that is none.
ERRORS = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


class _Loader(yaml.SafeLoader):
    """A safe loader in which merged mappings (`<<`) cannot grow without end."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > NODES:
            raise yaml.YAMLError("it has too many keys")


def read_tree(path: Path) -> dict[str, Any]:
    """The settings in a file."""
    try:
        text = read_regular(path, BYTES).decode("utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or reason(error)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8") from None
    try:
        tree = yaml.load(text, _Loader)
    except ERRORS as error:
        raise InputError(f"{path} is not YAML: {reason(error)[:120]}") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path} holds no settings; expected keys such as task, data, model, train")
    _check(tree, str(path))
    return tree


def read_value(text: str, name: str) -> Any:
    """The value of one setting, as it was typed."""
    try:
        value = yaml.load(text, _Loader)
    except ERRORS:
        raise InputError(f"{name}: cannot read the value {quoted(text)}") from None
    if isinstance(value, str):
        value = _number(value)
    _check(value, name)
    return value


def _number(word: str) -> Any:
    """YAML takes 3e-4 for a word; people mean the number."""
    try:
        return float(word)
    except ValueError:
        return word


def _check(tree: Any, where: str) -> None:
    """Every value is plain. A name that stands for a list counts each time, so the count has an end."""
    left, found = [(tree, 0)], 0
    while left:
        value, depth = left.pop()
        found += 1
        if found > NODES or depth > DEPTH:
            raise InputError(f"{where} holds more than {NODES:,} values, or more than {DEPTH} in one another")
        if isinstance(value, dict):
            odd = next((key for key in value if not isinstance(key, str)), None)
            if odd is not None:
                raise InputError(f"{where} has a key {quoted(odd)}; expected a name")
            left += [(inside, depth + 1) for inside in value.values()]
        elif isinstance(value, list):
            left += [(inside, depth + 1) for inside in value]
        elif not _is_plain(value):
            raise InputError(f"{where} holds {quoted(value)}; expected text, a number, yes or no")


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -LARGEST < value < LARGEST
    return value is None or isinstance(value, str)
