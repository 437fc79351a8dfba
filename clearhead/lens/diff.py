"""Differences of two specs: which choices differ, and the cost of the first spec with each one changed."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from ..errors import ClearheadError
from ..nn import Model
from .cost import Cost, cost


@dataclass(frozen=True)
class Change:
    """One choice that differs, in one place or identically in several.

    `cost` is that of the first spec with this choice of the second; None if that spec cannot be built.
    """

    places: tuple[str, ...]
    before: Any
    after: Any
    cost: Cost | None


def differences(one: Model, two: Model, length: int = 128) -> list[Change]:
    """The smallest subtrees that differ; the same change in several places is one choice."""
    if type(one) is not type(two):
        return [Change(("model",), type(one).__name__, type(two).__name__, cost(two, length=length))]
    groups: dict[Any, list[tuple[tuple[str, ...], Any, Any]]] = {}
    for place, before, after in _walk(one, two, ()):
        groups.setdefault((place[-1], before, after), []).append((place, before, after))
    changes = []
    for rows in groups.values():
        places = tuple(".".join(place) for place, _, _ in rows)
        _, before, after = rows[0]
        alone = _cost_with(one, [(place, value) for place, _, value in rows], length)
        changes.append(Change(places, _short(before), _short(after), alone))
    return changes


def _walk(one: Any, two: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any, Any]]:
    if one == two:
        return []
    if not is_dataclass(one) or type(one) is not type(two):
        return [(path, one, two)]
    rows = []
    for name in one.__dataclass_fields__:
        rows += _walk(getattr(one, name), getattr(two, name), (*path, name))
    return rows


def _cost_with(spec: Model, changes: list[tuple[tuple[str, ...], Any]], length: int) -> Cost | None:
    try:
        changed: Model = _with_changes(spec, changes)
        changed.empty()  # raises for sizes that cannot be built, which a cost formula does not notice
        return cost(changed, length=length)
    except (ClearheadError, RuntimeError):  # e.g. heads that do not divide the width
        return None


def _with_changes(node: Any, changes: list[tuple[tuple[str, ...], Any]]) -> Any:
    """All changes of a node are applied together: one by one, a tied head would not fit its embedding."""
    inner: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    for place, value in changes:
        if not place:
            return value
        inner.setdefault(place[0], []).append((place[1:], value))
    return replace(node, **{name: _with_changes(getattr(node, name), rest) for name, rest in inner.items()})


def _short(value: Any) -> Any:
    """A spec as its class name with the fields that differ from the default; other values as they are."""
    if isinstance(value, tuple):
        kinds = [_short(item) for item in value]
        return (
            kinds[0]
            if len({str(k) for k in kinds}) == 1 and kinds
            else ", ".join(map(str, kinds[:2])) + ", ..."
        )
    if not is_dataclass(value):
        return value
    fields = [
        f"{name}={_short(getattr(value, name))}"
        for name, field in value.__dataclass_fields__.items()
        if getattr(value, name) != field.default and not is_dataclass(getattr(value, name))
    ]
    return f"{type(value).__name__}({', '.join(fields)})"
