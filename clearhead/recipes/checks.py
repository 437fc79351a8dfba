"""Checks of settings: a dataclass of settings in; an error for the first value of a wrong type or range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import InputError, nearest, quoted

# Smallest and largest value; the largest are far beyond any real run and far below an overflow.
RANGES: Mapping[str, tuple[float, float]] = {
    "length": (1, 10**6), "tokens": (1, 10**9), "rows": (1, 10**6), "vocab": (1, 10**7),
    "smoothing": (0, 0.999), "batch_size": (1, 10**6), "epochs": (0.001, 10**6),
}  # fmt: skip
TYPE_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    dict: "keys and values",
    list: "a list",
    NoneType: "nothing",
}


def check_keys(what: str, section: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise for a section that is not a mapping, and for its first unknown key."""
    if not isinstance(section, Mapping):
        raise InputError(f"{what} is {quoted(section)}; expected keys and values")
    for key in section:
        if key not in names:
            raise InputError(f"{what} has no setting {quoted(key)}; {nearest(str(key), names)}")


def check_settings(name: str, settings: object) -> None:
    for key, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, key)
        if not _has_type(value, hint):
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            expected = nearest(value, choices) if choices else f"expected {_describe_type(hint)}"
            raise InputError(f"{name}.{key} is {quoted(value)}; {expected}")
        lowest, highest = RANGES.get(key, (None, None))
        if value is None or lowest is None or highest is None:
            continue
        if not lowest <= value <= highest:
            raise InputError(f"{name}.{key} is {quoted(value)}; expected {lowest:,} to {highest:,}")


def _has_type(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_has_type(value, option) for option in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is list:
        return isinstance(value, list) and all(_has_type(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_has_type(item, arguments[1]) for item in value.values())
    if hint is Any:
        return True
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else hint)


def _describe_type(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_describe_type, get_args(hint)))
    return TYPE_WORDS.get(get_origin(hint) or hint, str(hint))
