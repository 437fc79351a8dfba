"""Checks of settings: a dataclass of settings in; an error for the first value of a wrong type or range."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import InputError, nearest, quoted

# Smallest and largest value; the largest are far beyond any real run and far below an overflow.
RANGES: Mapping[str, tuple[float, float]] = {
    "length": (1, 10**6), "tokens": (1, 10**9), "rows": (1, 10**6), "vocab": (1, 10**7),
    "smoothing": (0, 0.999),
}  # fmt: skip
TYPE_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    dict: "keys and values",
    NoneType: "nothing",
}


def check_settings(name: str, settings: object) -> None:
    for key, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, key)
        if not _fits(value, hint):
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            what = nearest(value, choices) if choices else f"expected {_wording(hint)}"
            raise InputError(f"{name}.{key} is {quoted(value)}; {what}")
        least, most = RANGES.get(key, (None, None))
        if least is not None and most is not None and not least <= value <= most:
            raise InputError(f"{name}.{key} is {quoted(value)}; expected {least:,} to {most:,}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in inside)
    if origin is Literal:
        return isinstance(value, str) and value in inside
    if origin is dict:
        return isinstance(value, dict) and all(_fits(each, inside[1]) for each in value.values())
    if hint is Any:
        return True
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else hint)


def _wording(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_wording, get_args(hint)))
    return TYPE_WORDS.get(get_origin(hint) or hint, str(hint))
