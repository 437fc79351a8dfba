"""A tape: two steps of decoding in, watched call by call; out comes a function that makes the calls alone.

From one token to the next a model makes the same few hundred calls of torch. Another token goes in, and some
whole numbers are one more: how many keys there are, where the next one is written. The way to these calls
(modules, masks, contexts) is always the same, too, and at one row takes as long as the calls themselves. So
two steps are watched and compared, and where they are alike, those after them are played:

    def step(ids, n):
        r0 = embedding(ids, table)
        ...
        r3 = narrow(keys, 2, 0, 34+n)

What is not alike is not played: a tensor that was neither made in the step nor the same object in both
(padding that grows, a running state), a number that changed in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Play = Callable[[Tensor, int], Tensor]  # the new ids, and how many steps after the last one watched
WRITERS = frozenset(
    {"__setitem__", "__set__", *(f"__i{name}__" for name in ("add", "sub", "mul", "truediv"))}
)
DIRECT: dict[Any, Any] = {F.layer_norm: torch.layer_norm}  # the same, without torch's Python around it


class UnlikeError(Exception):
    """Two steps differ in more than numbers that are one more."""


@dataclass(frozen=True)
class Call:
    """One call of torch, and what it gave: a tensor, or several."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gave: Any

    @property
    def made(self) -> Sequence[Tensor]:
        return (self.gave,) if isinstance(self.gave, Tensor) else self.gave

    @property
    def writes(self) -> bool:
        """Whether it changes a tensor that was there before."""
        name = _name(self.function)
        in_place = name.endswith("_") and not name.endswith("__")
        return in_place or name in WRITERS or "out" in self.kwargs


class Watched(TorchFunctionMode):
    """One step as it went: `with watched: watched.answer = model(watched.ids)`."""

    def __init__(self, ids: Tensor) -> None:
        super().__init__()
        self.ids, self.answer = ids, ids
        self.calls: list[Call] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        gave = func(*args, **(kwargs or {}))
        several = isinstance(gave, tuple | list) and len(gave) and isinstance(gave[0], Tensor)
        if several or isinstance(gave, Tensor):
            self.calls.append(Call(func, args, kwargs or {}, gave))
        elif _name(func) in WRITERS:
            self.calls.append(Call(func, args, kwargs or {}, ()))
        return gave


def tape(first: Watched, second: Watched) -> Play | None:
    """The step that follows these two; `None` where they are not alike."""
    try:
        return _Comparison(first, second).written()
    except UnlikeError:
        return None


@dataclass(frozen=True)
class _Line:
    """A call as a line says it. `text` is None where the steps differ: it must not be needed."""

    text: str | None
    reads: Sequence[int]  # numbers of the tensors it is given
    makes: Sequence[int | None]  # numbers of those it gives; None for one that was there before
    single: bool
    writes: bool

    def said(self, registers: dict[int, str]) -> str:
        """With the names its tensors have at this place."""
        assert self.text is not None
        call = self.text.format(*(registers[number] for number in self.reads))
        names = ["_" if number is None else registers.get(number, "_") for number in self.makes]
        if not any(name != "_" for name in names):
            return f" {call}"
        return f" {', '.join(names)}{'' if self.single else ','} = {call}"


class _Comparison:
    """Two steps side by side, and the lines that say what both of them did."""

    def __init__(self, first: Watched, second: Watched) -> None:
        if len(first.calls) != len(second.calls):
            raise UnlikeError
        self._first, self._second = first, second
        self._numbers: tuple[dict[int, int], dict[int, int]] = {id(first.ids): 0}, {id(second.ids): 0}
        self._names: dict[int, str] = {}  # of what is not made in the step: weights, functions, settings
        self._held: dict[str, Any] = {}
        self._roots: dict[int, int | None] = {}  # by place in memory: who was computed there, in this step

    def written(self) -> Play:
        pairs = zip(self._first.calls, self._second.calls, strict=True)
        lines = [line for one, two in pairs for line in self._lines(one, two)]
        reads: list[int] = []
        self._word(self._first.answer, self._second.answer, reads)
        if not reads:
            raise UnlikeError
        # The lines are ours: calls that were made, whole numbers, and names such as r0 and h0.
        return FunctionType(_compiled(_source(_needed(lines, reads[0]), reads[0])), self._held)

    def _lines(self, one: Call, two: Call) -> Iterator[_Line]:
        """One line; of what only looks at another tensor's numbers, one for each tensor it gives."""
        yield (whole := self._line(one, two))
        for a, b, number in zip(one.made, two.made, whole.makes, strict=True):
            if number is not None and (look := self._look(a, b, number, one)):
                yield look

    def _look(self, a: Tensor, b: Tensor, number: int, call: Call) -> _Line | None:
        """A way to this tensor in one step from the one that its numbers were computed for."""
        place = a.untyped_storage().data_ptr()
        if place not in self._roots:
            mine = all(place != x.untyped_storage().data_ptr() for x in _tensors((call.args, call.kwargs)))
            self._roots[place] = number if mine else None
            return None
        root, shape = self._roots[place], (tuple(a.shape), a.stride(), a.storage_offset())
        if root is None or shape != (tuple(b.shape), b.stride(), b.storage_offset()):
            return None
        text = f"{self._hold(torch.as_strided)}({{}}, {', '.join(map(str, shape))})"
        return _Line(text, [root], [number], single=True, writes=False)

    def _line(self, one: Call, two: Call) -> _Line:
        reads: list[int] = []
        try:
            text: str | None = self._text(one, two, reads)
        except UnlikeError:
            text = None
        makes = [self._number(a, b) for a, b in _pairs(one.made, two.made)]
        return _Line(text, reads, makes, isinstance(one.gave, Tensor), one.writes)

    def _text(self, one: Call, two: Call, reads: list[int]) -> str:
        if one.function != two.function or one.kwargs.keys() != two.kwargs.keys():
            raise UnlikeError
        words = [self._word(a, b, reads) for a, b in _pairs(one.args, two.args)]
        words += [f"{name}={self._word(a, two.kwargs[name], reads)}" for name, a in one.kwargs.items()]
        return f"{self._hold(DIRECT.get(one.function, one.function))}({', '.join(words)})"

    def _number(self, a: Tensor, b: Tensor) -> int | None:
        ours, theirs = self._numbers
        if id(a) in ours or id(b) in theirs:  # written into, and given back
            return None
        ours[id(a)] = theirs[id(b)] = len(ours)
        return ours[id(a)]

    def _word(self, a: Any, b: Any, reads: list[int]) -> str:
        """How a line speaks of what was `a` in one step and `b` in the next."""
        if isinstance(a, Tensor):
            return self._tensor(a, b, reads)
        if type(a) is not type(b):
            raise UnlikeError
        if type(a) is int:
            return _grown(a, b)
        if isinstance(a, slice):
            parts = ((a.start, b.start), (a.stop, b.stop), (a.step, b.step))
            return f"slice({', '.join(self._word(x, y, reads) for x, y in parts)})"
        if isinstance(a, tuple | list):
            inside = "".join(f"{self._word(x, y, reads)}, " for x, y in _pairs(a, b))
            return f"[{inside}]" if isinstance(a, list) else f"({inside})"
        if a is not b and a != b:
            raise UnlikeError
        return self._hold(a)

    def _tensor(self, a: Tensor, b: Any, reads: list[int]) -> str:
        ours, theirs = self._numbers
        number = ours.get(id(a))
        if number != theirs.get(id(b)) or (number is None and a is not b):
            raise UnlikeError
        if number is None:
            return self._hold(a)
        reads.append(number)
        return "{}"

    def _hold(self, value: Any) -> str:
        name = self._names.setdefault(id(value), f"h{len(self._names)}")
        self._held[name] = value
        return name


def _name(function: Any) -> str:
    name: str = getattr(function, "__name__", "")
    return name


def _pairs(a: Sequence[Any], b: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    if len(a) != len(b):
        raise UnlikeError
    return zip(a, b, strict=True)


def _grown(a: int, b: int) -> str:
    if abs(b - a) > 1:
        raise UnlikeError
    return str(b) if a == b else f"{b}+n" if b > a else f"{b}-n"


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _needed(lines: Sequence[_Line], answer: int) -> list[_Line]:
    """The lines that the answer or a tensor outside depends on: checks that passed are not made again."""
    wanted, kept = {answer}, []
    for line in reversed(lines):
        if line.writes or not wanted.isdisjoint(line.makes):
            if line.text is None:
                raise UnlikeError
            kept.append(line)
            wanted.difference_update(line.makes)  # the last way to a tensor is the shortest
            wanted.update(line.reads)
    return kept[::-1]


def _source(lines: Sequence[_Line], answer: int) -> str:
    """A name is used again as soon as nobody needs its tensor: no activation outlives its use."""
    last = {number: i for i, line in enumerate(lines) for number in (*line.reads, *line.makes)}
    last[answer] = len(lines)
    registers, free = {0: "ids"}, [f"r{i}" for i in reversed(range(len(lines)))]
    text = ["def step(ids, n):"]
    for i, line in enumerate(lines):
        for number in line.makes:
            if number is not None and (last[number] > i or line.single):
                registers[number] = free.pop()
        text.append(line.said(registers))
        for number in {number for number in (*line.reads, *line.makes) if number and last[number] == i}:
            if number in registers:
                free.append(registers[number])
    text.append(f" return {registers[answer]}")
    return "\n".join(text)


@lru_cache(maxsize=32)
def _compiled(source: str) -> CodeType:
    """The code of the one function that the source defines."""
    found = compile(source, "<tape>", "exec").co_consts[0]
    assert isinstance(found, CodeType)
    return found
