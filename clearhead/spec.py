"""Specs: frozen dataclasses that describe a model as a tree, which round-trips through JSON.

A design choice is one field that holds one of several small classes: `positions=Rope(theta=1e4)`, never
`use_rope=True`. Every field is checked against its annotation when a spec is created, so a spec that
exists is well formed, wherever it came from.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import SpecError, nearest, quoted

S = TypeVar("S", bound="Spec")


@dataclass(frozen=True)
class Bounds:
    """Beside a number's type in an annotation: the smallest and the largest value that make sense."""

    low: float = -math.inf
    high: float = math.inf
    description: str = "a number"


MAX_COUNT = 2**48  # no size, count or position is larger
Count = Annotated[int, Bounds(1, MAX_COUNT, "a whole number from 1")]
Amount = Annotated[int, Bounds(0, MAX_COUNT, "a whole number from 0")]
# Sizes of attention kernels: more would take gigabytes for the shortest text.
BlockLength = Annotated[
    int, Bounds(1, 2**12, "a whole number from 1 to 4,096")
]  # tokens that are computed together
Directions = Annotated[int, Bounds(1, 2**14, "a whole number from 1 to 16,384")]
Repeats = Annotated[int, Bounds(1, 64, "a whole number from 1 to 64")]
Rate = Annotated[float, Bounds(0, 1, "a number from 0 to 1")]
Amplitude = Annotated[float, Bounds(0, 1e30, "a number from 0")]
Positive = Annotated[float, Bounds(1e-30, 1e30, "a number above 0")]
AboveOne = Annotated[float, Bounds(math.nextafter(1, 2), 1e30, "a number above 1")]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A design choice as a value. Subclasses are the alternatives; their `build` creates the module."""

    _registry: ClassVar[dict[str, type[Spec]]] = {}

    def __init_subclass__(cls) -> None:
        registered = Spec._registry.setdefault(cls.__name__, cls)
        if registered.__module__ != cls.__module__:
            raise SpecError(f"two spec kinds are called {cls.__name__!r}; names must be unique")

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for name in _fields(type(self)):
            if not _matches(getattr(self, name), hints[name]):
                given, expected = quoted(getattr(self, name)), _describe(hints[name])
                raise SpecError(f"{type(self).__name__}.{name} is {given}, expected {expected}")
        self.check()

    def __str__(self) -> str:
        """A short form: only the fields that differ from their defaults."""
        values = {n: getattr(self, n) for n in _fields(type(self))}
        changed = {n: value for n, value in values.items() if value != _default(type(self), n)}
        arguments = ", ".join(
            f"{n}={value if isinstance(value, Spec) else repr(value)}" for n, value in changed.items()
        )
        return f"{type(self).__name__}({arguments})" if arguments else type(self).__name__

    def check(self) -> None:
        """Override to raise for values whose types fit but whose meaning does not."""

    @classmethod
    def kinds(cls) -> dict[str, type[Spec]]:
        """The concrete subclasses by name: `Norm.kinds()` are all norms."""
        final = {n: k for n, k in Spec._registry.items() if not k.__subclasses__()}
        return {name: kind for name, kind in final.items() if issubclass(kind, cls)}

    def nodes(self) -> Iterator[Spec]:
        """This spec and every spec below it."""
        yield self
        for name in _fields(type(self)):
            for child in _specs_in(getattr(self, name)):
                yield from child.nodes()

    def edit(self: S, kind: type[Spec], **changes: Any) -> S:
        """A copy of this tree in which every node of `kind` has these fields changed."""
        if not any(isinstance(node, kind) for node in self.nodes()):
            kinds = {type(node).__name__ for node in self.nodes()}
            raise SpecError(f"there is no {kind.__name__} to edit; {nearest(kind.__name__, kinds)}")
        return self._apply_edit(kind, changes)

    def _apply_edit(self: S, kind: type[Spec], changes: dict[str, Any]) -> S:
        names = _fields(type(self))
        values = {n: _map(getattr(self, n), lambda s: s._apply_edit(kind, changes)) for n in names}
        if isinstance(self, kind):
            _check_field_names(type(self), changes)
            values |= changes
        return replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        names = _fields(type(self))
        plain = {name: _map(getattr(self, name), lambda s: s.to_dict()) for name in names}
        return {"kind": type(self).__name__} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Spec:
        """The inverse of `to_dict`. Nothing in the data can name code outside the known kinds."""
        word = data.get("kind")
        kind = Spec.kinds().get(word) if isinstance(word, str) else None
        if kind is None:
            raise SpecError(f"unknown spec kind {word!r}; {nearest(str(word), Spec.kinds())}")
        given = {name: _from_plain(value) for name, value in data.items() if name != "kind"}
        _check_field_names(kind, given)
        missing = [name for name, f in _fields(kind).items() if _required(f) and name not in given]
        if missing:
            raise SpecError(f"{kind.__name__} needs {', '.join(missing)}")
        return kind(**given)


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The sizes that the parts of one tower share while they are built."""

    width: int
    depth: int
    heads: int
    head_dim: int
    causal: bool
    summaries: bool = False  # tokens also attend to summaries of blocks, which have distances of their own


TYPE_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "True or False",
    type(None): "nothing",
}
_HINTS: dict[type[Any], dict[str, Any]] = {}


def _fields(kind: type[Any]) -> dict[str, Field[Any]]:
    return {f.name: f for f in fields(kind)}


def _hints(kind: type[Any]) -> dict[str, Any]:
    """Annotations as types; resolving them is slow, so each class is resolved once."""
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind, include_extras=True)
    return _HINTS[kind]


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(kind: type[Any], name: str) -> Any:
    field = _fields(kind)[name]
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _check_field_names(kind: type[Spec], given: dict[str, Any]) -> None:
    for name in given:
        if name not in _fields(kind):
            hint = nearest(name, _fields(kind))
            raise SpecError(f"{kind.__name__} has no field {name!r}; {hint}")


def _specs_in(value: Any) -> Iterator[Spec]:
    if isinstance(value, Spec):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _specs_in(item)


def _map(value: Any, change: Any) -> Any:
    """`change` applied to every spec directly inside a field's value."""
    if isinstance(value, Spec):
        return change(value)
    return tuple(_map(item, change) for item in value) if isinstance(value, tuple) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return Spec.from_dict(value)
    return tuple(_from_plain(item) for item in value) if isinstance(value, list) else value


def _matches(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type and within its bounds.

    An int may stand for a float, a bool only for a bool; no number is infinite or NaN.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = next(item for item in arguments if isinstance(item, Bounds))
        return _matches(value, arguments[0]) and bounds.low <= value <= bounds.high
    if origin in (Union, types.UnionType):
        return any(_matches(value, option) for option in arguments)
    if origin is Literal:
        return isinstance(value, str | int | float | type(None)) and value in arguments  # a list has no hash
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is ...:
            return all(_matches(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(_matches, value, arguments))
    if isinstance(value, bool) or hint is bool:
        return isinstance(value, bool) and hint is bool
    if hint is float and isinstance(value, float):
        return math.isfinite(value)
    if hint in (int, float):
        return isinstance(value, int) and abs(value) < 2**63  # what a tensor can hold
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    """An annotation in words, for error messages."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next(item.description for item in arguments if isinstance(item, Bounds))
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(option) for option in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin is tuple:
        return f"a tuple of {_describe(arguments[0])}"
    return TYPE_NAMES.get(hint) or str(getattr(hint, "__name__", hint))
