"""Edits: text such as `Attention.kernel=Window(left=256)` in, a changed spec out. Text is parsed, never run.

    Attention.kernel = Performer(features=256)      every attention of the model
    encoder.Attention.kernel = Linformer(64, 512)   only those below the field `encoder`
    Block.order = post                              any field of any kind of spec

A value is a number, a word, None, a tuple, or a kind of spec with its fields.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import fields, replace
from inspect import get_annotations
from typing import Any, TypeVar

from ..errors import SpecError, nearest, quoted
from ..spec import Spec

S = TypeVar("S", bound=Spec)
LONGEST_VALUE = 500  # characters of a value


def apply_edits(spec: S, edits: Mapping[str, Any]) -> S:
    """The spec with all edits applied, in order. Values may be specs, plain values, or text for `parse`."""
    for place, value in edits.items():
        if not isinstance(place, str) or "." not in place:
            raise SpecError(f"edit {place!r} is not Kind.field, such as Attention.kernel")
        *path, word, field = place.split(".")
        kind = Spec.kinds().get(word)
        if kind is None:
            there = {type(node).__name__ for node in spec.nodes()}
            raise SpecError(f"edit {place!r}: there is no kind {word!r}; {nearest(word, there)}")
        new = parse(value) if isinstance(value, str) else value
        spec = _at(spec, path, kind, {field: new}, place)
    return spec


def check_edits(edit: object) -> Mapping[str, Any]:
    """The `edit` argument of `load` and `build`, checked; None means no edits."""
    if edit is None:
        return {}
    if not isinstance(edit, Mapping):
        raise SpecError(f"edit is {quoted(edit)}, expected a dict such as {{'Attention.window': (2, 0)}}")
    return edit


def edits_as_text(edits: Mapping[str, Any]) -> dict[str, str]:
    """Edits as text that can be stored in a file; `parse` reads it back."""
    return {place: value if isinstance(value, str) else str(value) for place, value in edits.items()}


def parse(text: str) -> Any:
    """A value written as text: 3, 0.5, None, (255, 0), post, Linear, Window(256), Rope(theta=1e6)."""
    if text == "":
        return ""
    try:
        tree = ast.parse(text.strip(), mode="eval") if len(text) <= LONGEST_VALUE else None
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        tree = None
    if tree is None:
        raise SpecError(
            f"cannot read the value {text[:60]!r}; "
            f"expected one such as 3, None, (255, 0), post or Window(left=256)"
        )
    return _value(tree.body, text)


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _value(node.operand, text)
        if isinstance(number, int | float):
            return -number
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value(item, text) for item in node.elts)
    if isinstance(node, ast.Name):  # a kind with all its defaults, or a word
        return node.id if not node.id[0].isupper() else _spec(node.id, [], {})
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        named = {item.arg: _value(item.value, text) for item in node.keywords if item.arg is not None}
        if len(named) == len(node.keywords):
            return _spec(node.func.id, [_value(item, text) for item in node.args], named)
    raise SpecError(
        f"cannot read {ast.unparse(node)[:60]!r} in {text[:60]!r}; a value is a number, a word, None, "
        f"a tuple, or a kind with its fields, such as Window(left=256)"
    )


def _spec(word: str, placed: list[Any], named: dict[str, Any]) -> Spec:
    kind = Spec.kinds().get(word)
    if kind is None:
        raise SpecError(f"unknown spec kind {word!r}; {nearest(word, Spec.kinds())}")
    # Own fields come before inherited ones: the first value of Window(256) is `left`, not `dropout`.
    names = [f.name for f in fields(kind)]
    own = [name for name in get_annotations(kind) if name in names]
    order = own + [name for name in names if name not in own]
    if len(placed) > len(order):
        raise SpecError(f"{word} has {len(order)} fields ({', '.join(order)}), given {len(placed)} values")
    given = dict(zip(order, placed, strict=False))
    twice = sorted(set(given) & set(named))
    if twice:
        raise SpecError(f"{word}: {twice[0]} is given twice")
    return Spec.from_dict({"kind": word, **given, **named})


def _at(spec: S, path: list[str], kind: type[Spec], changes: dict[str, Any], place: str) -> S:
    """Apply an edit below the field that `path` leads to."""
    if not path:
        return spec.edit(kind, **changes)
    below = getattr(spec, path[0], None)
    if not isinstance(below, Spec):
        parts = [f.name for f in fields(spec) if isinstance(getattr(spec, f.name), Spec)]
        raise SpecError(
            f"edit {place!r}: {type(spec).__name__} has no part {path[0]!r}; {nearest(path[0], parts)}"
        )
    return replace(spec, **{path[0]: _at(below, path[1:], kind, changes, place)})
