"""Capture: two recorded decode steps in; a function that issues their torch calls for the steps after them.

From one token to the next a model issues the same few hundred torch calls. Another token goes in, and some
integers are one higher: how many keys there are, where the next one is written. The Python code that leads to
these calls (modules, masks, contexts) is the same, too, and at batch size 1 takes as long as the calls. So
two steps are recorded and compared, and if they match, the calls are compiled into a function:

    def step(ids, n):
        r0 = embedding(ids, table)
        ...
        r3 = narrow(keys, 2, 0, 34+n)

Nothing is compiled if the steps differ otherwise: a tensor that was neither made in the step nor the same
object in both (padding that grows, a running state), or an integer that changed in another way.

A Python function whose calls depend on the numbers in a tensor must not be recorded call by call. The hook
for it is torch's own protocol: dispatched through `torch.overrides.handle_torch_function`, the function is
one call of the recording. `apply_product` in `clearhead/engine/products.py` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .fusion import Fusion
from .line import WRITERS, StepLine, TorchCall, name_of

ReplayFn = Callable[[Tensor, int], Tensor]  # the new ids, and how many steps after the last recorded one
# The same operator without torch's Python wrapper.
UNWRAPPED_OPERATORS: dict[Any, Any] = {F.layer_norm: torch.layer_norm}


class StepsDifferError(Exception):
    """Two steps differ in more than integers that are one higher."""


class RecordedStep(TorchFunctionMode):
    """The torch calls of one step: `with recorded: recorded.output = model(recorded.ids)`."""

    def __init__(self, ids: Tensor) -> None:
        super().__init__()
        self.ids, self.output = ids, ids
        self.calls: list[TorchCall] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        multiple = isinstance(result, tuple | list) and len(result) and isinstance(result[0], Tensor)
        if multiple or isinstance(result, Tensor):
            self.calls.append(TorchCall(func, args, kwargs or {}, result))
        elif name_of(func) in WRITERS:
            self.calls.append(TorchCall(func, args, kwargs or {}, ()))
        return result


def compile_replay(first: RecordedStep, second: RecordedStep, *, fuse: bool = False) -> ReplayFn | None:
    """The function for the steps that follow these two; `None` if they do not match.

    With `fuse`, small calls are replaced by fused operators, whose last digits differ.
    """
    try:
        return _Comparison(first, second).compile(fuse=fuse)
    except StepsDifferError:
        return None


class _Comparison:
    """Two steps side by side, and the lines that describe both."""

    def __init__(self, first: RecordedStep, second: RecordedStep) -> None:
        if len(first.calls) != len(second.calls):
            raise StepsDifferError
        self._first, self._second = first, second
        # Tensors are numbered in the order they are made: the n-th of one step is the n-th of the other.
        self._numbers: tuple[dict[int, int], dict[int, int]] = {id(first.ids): 0}, {id(second.ids): 0}
        self._names: dict[int, str] = {}  # of what is not made in the step: weights, functions, settings
        self._constants: dict[str, Any] = {}
        self._roots: dict[int, int | None] = {}  # by storage address: which tensor of this step allocated it

    def compile(self, *, fuse: bool) -> ReplayFn:
        pairs = zip(self._first.calls, self._second.calls, strict=True)
        lines = [line for one, two in pairs for line in self._lines(one, two)]
        reads: list[int] = []
        self._expression(self._first.output, self._second.output, reads)
        if not reads:
            raise StepsDifferError
        # Nothing from outside is compiled: the source holds integers and generated names such as r0 and c0.
        fusion = Fusion(_needed(lines, reads[0]), self._number_of, self._constant)
        lines = fusion.run() if fuse else fusion.lines
        code = _compiled(_source(_needed(lines, reads[0]), reads[0], fusion.statics))
        return FunctionType(code, self._constants)

    def _number_of(self, x: Any) -> int | None:
        """The number of a tensor of the second step; None for what was not made in it."""
        return self._numbers[1].get(id(x))

    def _lines(self, one: TorchCall, two: TorchCall) -> Iterator[StepLine]:
        """The line of a call; for each output that is a view, also a direct line to it."""
        yield (whole := self._line(one, two))
        for a, b, number in zip(one.outputs, two.outputs, whole.makes, strict=True):
            if number is not None and (view := self._view(a, b, number, one)):
                yield view

    def _view(self, a: Tensor, b: Tensor, number: int, call: TorchCall) -> StepLine | None:
        """This tensor as one `as_strided` of the tensor that allocated its memory: views in one step."""
        address = a.untyped_storage().data_ptr()
        if address not in self._roots:
            own = all(address != x.untyped_storage().data_ptr() for x in _tensors((call.args, call.kwargs)))
            self._roots[address] = number if own else None
            return None
        root, layout = self._roots[address], (tuple(a.shape), a.stride(), int(a.storage_offset()))
        if root is None or layout != (tuple(b.shape), b.stride(), b.storage_offset()):
            return None
        text = f"{self._constant(torch.as_strided)}({{}}, {', '.join(map(str, layout))})"
        return StepLine(text, [root], [number], single=True, writes=False, view=layout)

    def _line(self, one: TorchCall, two: TorchCall) -> StepLine:
        reads: list[int] = []
        try:
            text: str | None = self._call(one, two, reads)
        except StepsDifferError:
            text = None
        makes = [self._number(a, b) for a, b in _pairs(one.outputs, two.outputs)]
        return StepLine(text, reads, makes, isinstance(one.result, Tensor), one.writes, call=two, before=one)

    def _call(self, one: TorchCall, two: TorchCall, reads: list[int]) -> str:
        if one.function != two.function or one.kwargs.keys() != two.kwargs.keys():
            raise StepsDifferError
        words = [self._expression(a, b, reads) for a, b in _pairs(one.args, two.args)]
        words += [f"{name}={self._expression(a, two.kwargs[name], reads)}" for name, a in one.kwargs.items()]
        return f"{self._constant(UNWRAPPED_OPERATORS.get(one.function, one.function))}({', '.join(words)})"

    def _number(self, a: Tensor, b: Tensor) -> int | None:
        ours, theirs = self._numbers
        if id(a) in ours or id(b) in theirs:  # an input, written in place and returned
            return None
        ours[id(a)] = theirs[id(b)] = len(ours)
        return ours[id(a)]

    def _expression(self, a: Any, b: Any, reads: list[int]) -> str:
        """Source for an argument that was `a` in one step and `b` in the next."""
        if isinstance(a, Tensor):
            return self._tensor(a, b, reads)
        if type(a) is not type(b):
            raise StepsDifferError
        if type(a) is int:
            return _integer(a, b)
        if isinstance(a, slice):
            parts = ((a.start, b.start), (a.stop, b.stop), (a.step, b.step))
            return f"slice({', '.join(self._expression(x, y, reads) for x, y in parts)})"
        if isinstance(a, tuple | list):
            inside = "".join(f"{self._expression(x, y, reads)}, " for x, y in _pairs(a, b))
            return f"[{inside}]" if isinstance(a, list) else f"({inside})"
        if a is not b and a != b:
            raise StepsDifferError
        return self._constant(a)

    def _tensor(self, a: Tensor, b: Any, reads: list[int]) -> str:
        ours, theirs = self._numbers
        number = ours.get(id(a))
        if number != theirs.get(id(b)) or (number is None and a is not b):
            raise StepsDifferError
        if number is None:
            return self._constant(a)
        reads.append(number)
        return "{}"

    def _constant(self, value: Any) -> str:
        name = self._names.setdefault(id(value), f"c{len(self._names)}")
        self._constants[name] = value
        return name


def _pairs(a: Sequence[Any], b: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    if len(a) != len(b):
        raise StepsDifferError
    return zip(a, b, strict=True)


def _integer(a: int, b: int) -> str:
    """An integer that stays, or goes up or down by one a step; `n` counts the steps after the second."""
    if abs(b - a) > 1:
        raise StepsDifferError
    return str(b) if a == b else f"{b}+n" if b > a else f"{b}-n"


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _needed(lines: Sequence[StepLine], output: int) -> list[StepLine]:
    """The lines that the output or a tensor outside depends on; checks that passed are not repeated."""
    wanted, kept = {output}, []
    for line in reversed(lines):
        if line.writes or not wanted.isdisjoint(line.makes):
            if line.text is None:
                raise StepsDifferError
            kept.append(line)
            # Read backwards, the first line that makes a tensor is the direct one (a single view).
            wanted.difference_update(line.makes)
            wanted.update(line.reads, line.needs)
    return kept[::-1]


def _source(lines: Sequence[StepLine], output: int, statics: dict[int, str]) -> str:
    """Registers are reused after the last use of their tensor, so no activation lives longer than needed.

    `statics` are tensors that are the same object in every step, by their names.
    """
    last = {number: i for i, line in enumerate(lines) for number in (*line.reads, *line.needs, *line.makes)}
    last[output] = len(lines)
    registers, free = {0: "ids", **statics}, [f"r{i}" for i in reversed(range(len(lines)))]
    text = ["def step(ids, n):"]
    for i, line in enumerate(lines):
        for number in line.makes:
            if number is not None and number not in statics and (last[number] > i or line.single):
                registers[number] = free.pop()
        if not (line.view is not None and line.makes[0] in statics):  # a static view is made already
            text.append(line.source(registers))
        done = {number for number in (*line.reads, *line.needs, *line.makes) if number and last[number] == i}
        free += [registers[number] for number in done if number in registers and number not in statics]
    # A static tensor is overwritten by the next step; the caller may keep what it gets.
    text.append(f" return {registers[output]}{'.clone()' if output in statics else ''}")
    return "\n".join(text)


@lru_cache(maxsize=32)
def _compiled(source: str) -> CodeType:
    """The code of the one function that the source defines."""
    found = compile(source, "<replayed decode step>", "exec").co_consts[0]
    assert isinstance(found, CodeType)
    return found
