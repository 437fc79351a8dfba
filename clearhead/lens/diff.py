"""The difference of two specs: which choices differ, and what each alone does to the first."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from ..errors import ClearheadError
from ..nn.model import Model
from .cost import Cost, cost


@dataclass(frozen=True)
class Change:
    """One choice that differs. `cost` is that of the first spec with this choice of the second."""

    place: str
    before: Any
    after: Any
    cost: Cost | None  # None: the choice does not stand alone


def differences(one: Model, two: Model, length: int = 128) -> list[Change]:
    """The smallest places where the trees differ; a choice of another kind is one difference."""
    found: list[Change] = []
    if type(one) is not type(two):
        return [Change("model", type(one).__name__, type(two).__name__, cost(two, length))]
    for place, before, after in _walk(one, two, ()):
        found.append(
            Change(".".join(place), _short(before), _short(after), _alone(one, place, after, length))
        )
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


def _alone(spec: Model, place: tuple[str, ...], value: Any, length: int) -> Cost | None:
    try:
        return cost(_with(spec, place, value), length)
    except (ClearheadError, RuntimeError):  # a width that the heads do not divide, a tie that does not fit
        return None


def _with(node: Any, place: tuple[str, ...], value: Any) -> Any:
    if not place:
        return value
    return replace(node, **{place[0]: _with(getattr(node, place[0]), place[1:], value)})


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
    said = [
        f"{name}={_short(getattr(value, name))}"
        for name, field in value.__dataclass_fields__.items()
        if getattr(value, name) != field.default and not is_dataclass(getattr(value, name))
    ]
    return f"{type(value).__name__}({', '.join(said)})"
