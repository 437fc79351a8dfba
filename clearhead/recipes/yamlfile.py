"""YAML from untrusted files: a path or a typed value in, plain Python values out, or a one-line error.

A few lines of YAML can expand to billions of nodes (aliases of lists of aliases), and values may be dates,
sets or bytes. Settings are none of this: at most ten thousand strings, numbers, lists and mappings with
string keys.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml

from ..errors import InputError, quoted, reason
from ..readfile import read_regular

MAX_BYTES = 64 * 2**10  # of a file; the longest preset has 2,000
MAX_NODES = 10_000
MAX_DEPTH = 50
INT_LIMIT = 2**63
# What PyYAML raises: its own errors, and those of Python for malformed numbers and dates.
ERRORS = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


class _Loader(yaml.SafeLoader):
    """A safe loader that limits the size of merged mappings (`<<`)."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MAX_NODES:
            raise yaml.YAMLError("it has too many keys")


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a file."""
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8")
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
    _check_values(tree, str(path))
    return tree


def parse_value(text: str, name: str) -> Any:
    """The value of one setting, as it was typed."""
    try:
        value = yaml.load(text, _Loader)
    except ERRORS:
        raise InputError(f"{name}: cannot read the value {quoted(text)}") from None
    if isinstance(value, str):
        value = _as_number(value)
    _check_values(value, name)
    return value


def _as_number(word: str) -> Any:
    """YAML 1.1 reads 3e-4 as a string; people mean the number."""
    try:
        return float(word)
    except ValueError:
        return word


def _check_values(tree: Any, where: str) -> None:
    """Check that every value is plain. Aliases count each time, so the walk always ends."""
    pending, count = [(tree, 0)], 0
    while pending:
        value, depth = pending.pop()
        count += 1
        if count > MAX_NODES or depth > MAX_DEPTH:
            raise InputError(
                f"{where} holds more than {MAX_NODES:,} values, or nests them more than {MAX_DEPTH} deep"
            )
        if isinstance(value, dict):
            bad_key = next((key for key in value if not isinstance(key, str)), None)
            if bad_key is not None:
                raise InputError(f"{where} has a key {quoted(bad_key)}; expected a name")
            pending += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            pending += [(item, depth + 1) for item in value]
        elif not _is_plain(value):
            raise InputError(f"{where} holds {quoted(value)}; expected text, a number, yes or no")


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -INT_LIMIT < value < INT_LIMIT
    return value is None or isinstance(value, str)
