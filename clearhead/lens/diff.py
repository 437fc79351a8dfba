"""The difference of two specs: which choices differ, and what each alone does to the first."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from ..errors import ClearheadError
from ..nn import Model
from .cost import Cost, cost


@dataclass(frozen=True)
class Change:
    """One choice that differs, in one place or in several alike.

    `cost` is that of the first spec with this choice of the second; None: the choice does not stand alone.
    """

    places: tuple[str, ...]
    before: Any
    after: Any
    cost: Cost | None


def differences(one: Model, two: Model, length: int = 128) -> list[Change]:
    """The smallest places where the trees differ; the same change in several places is one choice."""
    if type(one) is not type(two):
        return [Change(("model",), type(one).__name__, type(two).__name__, cost(two, length=length))]
    alike: dict[Any, list[tuple[tuple[str, ...], Any, Any]]] = {}
    for place, before, after in _walk(one, two, ()):
        alike.setdefault((place[-1], before, after), []).append((place, before, after))
    found = []
    for rows in alike.values():
        places = tuple(".".join(place) for place, _, _ in rows)
        _, before, after = rows[0]
        alone = _alone(one, [(place, value) for place, _, value in rows], length)
        found.append(Change(places, _short(before), _short(after), alone))
    return found


def _walk(one: Any, two: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any, Any]]:
    if one == two:
        return []
    if not is_dataclass(one) or type(one) is not type(two):
        return [(path, one, two)]
    rows = []
    for name in one.__dataclass_fields__:
        rows += _walk(getattr(one, name), getattr(two, name), (*path, name))
    return rows


def _alone(spec: Model, changes: list[tuple[tuple[str, ...], Any]], length: int) -> Cost | None:
    try:
        changed: Model = _with_all(spec, changes)
        changed.empty()  # a formula does not notice sizes that cannot be built
        return cost(changed, length=length)
    except (ClearheadError, RuntimeError):  # a width that the heads do not divide, a tie that does not fit
        return None


def _with_all(node: Any, changes: list[tuple[tuple[str, ...], Any]]) -> Any:
    """Changes to one node are made at once: halfway, a tied head would not fit its table."""
    inner: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    for place, value in changes:
        if not place:
            return value
        inner.setdefault(place[0], []).append((place[1:], value))
    return replace(node, **{name: _with_all(getattr(node, name), rest) for name, rest in inner.items()})


def _short(value: Any) -> Any:
    """Kinds by name with what is not a default; plain values as they are."""
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
