"""The lines of a captured decode step: recorded torch calls, and what each of them reads and makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

# In-place functions whose names do not end in a single underscore.
WRITERS = frozenset(
    {"__setitem__", "__set__", *(f"__i{name}__" for name in ("add", "sub", "mul", "truediv"))}
)


def name_of(function: Any) -> str:
    name: str = getattr(function, "__name__", "")
    return name


@dataclass(frozen=True)
class TorchCall:
    """One call of torch, and its result: one tensor or several."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    @property
    def outputs(self) -> Sequence[Tensor]:
        return (self.result,) if isinstance(self.result, Tensor) else self.result

    @property
    def writes(self) -> bool:
        """Whether it changes a tensor that existed before."""
        name = name_of(self.function)
        in_place = name.endswith("_") and not name.endswith("__")
        return in_place or name in WRITERS or "out" in self.kwargs


ViewLayout = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, offset


@dataclass(frozen=True)
class StepLine:
    """A call as a line of source. `text` is None if the two steps differ: then nobody may need its result."""

    text: str | None
    reads: Sequence[int]  # numbers of its input tensors
    makes: Sequence[int | None]  # numbers of its output tensors; None for one that existed before
    single: bool  # whether it returns one tensor, not a tuple
    writes: bool
    call: TorchCall | None = None  # the call in the second recorded step
    before: TorchCall | None = None  # and in the first
    view: ViewLayout | None = None  # of a line that is a view of the tensor that it reads
    left: str | None = None  # of a fused operator: the names that it assigns; its tensors are static
    needs: Sequence[int] = ()  # tensors that a fused operator reads by address

    def source(self, registers: dict[int, str]) -> str:
        """With the names that its tensors have at this line."""
        assert self.text is not None
        call = self.text.format(*(registers[number] for number in self.reads))
        if self.left is not None:
            return f" {self.left} = {call}"
        names = ["_" if number is None else registers.get(number, "_") for number in self.makes]
        if not any(name != "_" for name in names):
            return f" {call}"
        return f" {', '.join(names)}{'' if self.single else ','} = {call}"
