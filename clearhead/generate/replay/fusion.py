"""Fusion: the calls of a captured decode step in; the same step with fewer calls out.

Between two products a step makes many small torch calls. Those that `clearhead.engine.fused` can compute in
one pass are replaced; everything else stays as it was recorded.

    add, norm                                    ->  add_norm
    rotate q and k, write k and v, attention     ->  attend (see attention_fusion.py)
    activation, times the other half             ->  gate

A fused operator writes into a tensor of its own, allocated when the step is captured and reused in every
step. Its other operands are addresses: known ones, or those of tensors that a product just made. Products
lose what the operators around them can do on the way: bfloat16 rows are made and read by the operators, and
the range of an int8 row comes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...engine import INT8_LEVELS, AsymmetricProduct, Product, apply_product, int8_operator, kernels
from ...nn import rms_norm
from .line import StepLine, TorchCall, name_of

MOST_ROWS = 8  # for more, torch's calls, which use all threads, are faster
ACTIVATION_NAMES: dict[Any, str] = {F.silu: "silu", F.relu: "relu"}  # gelu is told by its argument


@dataclass(frozen=True)
class Operand:
    """Where a tensor of the step is: an offset, in numbers, into the tensor that owns its memory."""

    root: int
    offset: int
    like: Tensor  # the tensor as it was recorded: its shape, strides and dtype

    @property
    def rows(self) -> int:
        return self.like.numel() // self.like.shape[-1]

    @property
    def is_rows(self) -> bool:
        """Whether it is float32, row after row."""
        return self.like.dtype == torch.float32 and self.like.is_contiguous() and self.rows <= MOST_ROWS

    @property
    def is_row_slice(self) -> bool:
        """Whether it is float32 rows at equal distances, (R, 1, width), cut from the rows of a product."""
        x = self.like
        if x.dtype != torch.float32 or x.stride(-1) != 1 or self.rows > MOST_ROWS:
            return False
        return x.ndim == 3 and (x.shape[1] == 1 or x.shape[0] == 1)

    @property
    def row_stride(self) -> int:
        """The distance of rows; of a single row any will do."""
        x = self.like
        return 0 if self.rows == 1 else x.stride(-2) if x.shape[-2] > 1 else x.stride(0)


@dataclass(eq=False)
class FusedCall:
    """A call of a fused operator. Its text is written last, when it is known which operands are bfloat16."""

    kernel: str
    names: Sequence[str]  # of the numbers that stay the same, in the order of the operator
    numbers: dict[str, Any]
    operands: list[Operand | None]  # whose addresses come next; None is the address 0
    tensors: list[Tensor | None]  # whole tensors, by their addresses
    words: list[str]  # what follows, as source
    makes: list[int]  # the output first
    rows: int
    half_flag: str  # the name of the flag that says that operands are bfloat16
    half_operands: slice = field(default_factory=lambda: slice(None))  # those it speaks of
    writes: bool = False  # into tensors that existed before

    @property
    def reads(self) -> list[int]:
        return [operand.root for operand in self.operands if operand is not None]

    def accepts_halves(self, root: int) -> bool:
        """Whether this tensor may be bfloat16: it must be all that the flag speaks of, and nothing else."""
        flagged = [x.root for x in self.operands[self.half_operands] if x is not None]
        return set(flagged) == {root} and self.reads.count(root) == len(flagged)


@dataclass
class Fusion:
    """Rewrites the lines of one step. `number_of` gives the number of a tensor made in the step."""

    lines: list[StepLine]
    number_of: Callable[[Any], int | None]
    constant: Callable[[Any], str]
    statics: dict[int, str] = field(default_factory=dict)  # tensors that are the same object in every step
    _fused: dict[int, FusedCall] = field(default_factory=dict)  # by position
    _fused_readers: dict[int, list[FusedCall]] = field(default_factory=dict)  # by the tensor that they read
    _buffers: dict[int, Tensor] = field(default_factory=dict)  # the static tensors, by number

    def run(self) -> list[StepLine]:
        from .attention_fusion import fuse_attention

        if kernels() is None or not any(is_call(line, apply_product) for line in self.lines):
            return self.lines
        self._makers = {n: i for i, line in enumerate(self.lines) for n in line.makes if n is not None}
        self._index_readers()
        for position, line in enumerate(self.lines):
            for fuse in (fuse_attention, fuse_norm, fuse_gate):
                call = fuse(self, position, line)
                if call is not None:
                    self._fused[position] = call
                    break
        for call in self._fused.values():
            for number in set(call.reads):
                self._fused_readers.setdefault(number, []).append(call)
        for position in range(len(self.lines)):
            self._lower_product(position)
        for position, call in self._fused.items():
            self.lines[position] = self._fused_line(call)
        for line in self.lines:
            self._name_static_view(line)
        return [line for line in self.lines if line.text is not None]

    # How lines hang together

    def maker(self, x: Any) -> int | None:
        """The position of the line that makes a tensor."""
        number = self.number_of(x) if isinstance(x, Tensor) else None
        position = None if number is None else self._makers.get(number)
        return None if position is None or self.lines[position].text is None else position

    def call_of(self, position: int | None) -> TorchCall | None:
        return None if position is None or position in self._fused else self.lines[position].call

    def readers(self, number: int | None) -> list[int]:
        """The positions of the lines that read a tensor, those of its views included."""
        found = [i for i in self._readers.get(number, ()) if self.lines[i].text is not None]
        views = [self.lines[i].makes[0] for i in found if self.lines[i].view is not None]
        direct = [i for i in found if self.lines[i].view is None]
        return direct + [reader for view in views for reader in self.readers(view)]

    def drop(self, position: int) -> None:
        self.lines[position] = replace(self.lines[position], text=None)

    def operand(self, x: Tensor) -> Operand | None:
        """Where a tensor of the step is; None for one from outside, or if its memory is not known."""
        number = self.number_of(x)
        if number is None:
            return None
        line = self.lines[self._makers[number]] if number in self._makers else None
        if line is not None and line.view is not None:
            return Operand(line.reads[0], line.view[2], x)
        return Operand(number, 0, x) if x.storage_offset() == 0 else None

    def _index_readers(self) -> None:
        self._readers: dict[int | None, list[int]] = {}
        for i, line in enumerate(self.lines):
            for number in line.reads:
                self._readers.setdefault(number, []).append(i)

    # What is written

    def static(self, number: int | None, like: Tensor) -> Tensor:
        """A tensor for the output of a fused operator, which stands for this number from now on."""
        assert number is not None
        self._buffers[number] = out = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        self.statics[number] = self.constant(out)
        return out

    def _name_static_view(self, line: StepLine) -> None:
        """A view of a static tensor is static, too."""
        if line.view is not None and line.reads[0] in self._buffers:
            (number,) = line.makes
            assert number is not None
            if number not in self.statics:
                self.statics[number] = self.constant(self._buffers[line.reads[0]].as_strided(*line.view))

    def _lower_product(self, position: int) -> None:
        """A product without dispatch, and without what the fused operators around it can do for it."""
        line = self.lines[position]
        if not is_call(line, apply_product) or line.call is None:
            return
        x, product = line.call.args
        assert isinstance(product, Product)
        source = self._fused_source(x, position)
        halves = product.takes == torch.bfloat16
        if source is not None and isinstance(product, AsymmetricProduct) and source.rows == 1:
            source.numbers["levels"] = INT8_LEVELS
            words = ("{}", f"s{source.makes[0]}", f"z{source.makes[0]}", self.constant(product.matrix))
            text = f"{self.constant(int8_operator())}({', '.join(words)})"
        elif source is not None and halves and self._gives_halves(line, product):
            source.numbers["out_bf16"] = 1
            self._make_half(source.makes[0], x)
            text = f"{self.constant(product.multiply)}({{}})"
        else:
            text = f"{self.constant(product.compute)}({{}})"
        self.lines[position] = replace(line, text=text)

    def _fused_source(self, x: Tensor, reader: int) -> FusedCall | None:
        """The fused call whose whole output is the input of this product, and of nothing else."""
        where = self.operand(x)
        if where is None or where.root not in self._buffers or where.offset:
            return None
        call = self._fused.get(self._makers[where.root])
        fused, others = self._consumers(where.root)
        if call is None or call.makes[0] != where.root or fused or others != [reader]:
            return None
        return call if x.is_contiguous() and self._buffers[where.root].numel() == x.numel() else None

    def _consumers(self, number: int) -> tuple[list[FusedCall], list[int]]:
        """What reads a tensor: fused calls, and the positions of other lines."""
        fused = self._fused_readers.get(number, [])
        return fused, [i for i in self.readers(number) if i not in self._fused]

    def _gives_halves(self, line: StepLine, product: Product) -> bool:
        """Whether the results may stay as the product gives them; sets the flags of their readers if so."""
        if product.gives == torch.float32:
            return True
        number = line.makes[0]
        assert number is not None
        fused, others = self._consumers(number)
        if others or not all(call.accepts_halves(number) for call in fused):
            return False
        for call in fused:
            call.numbers[call.half_flag] = 1
        return True

    def _make_half(self, number: int, x: Tensor) -> None:
        """The bfloat16 tensor at the same address, as the input of the product."""
        # By its storage: the buffer may be strided, as the heads of attention are, and x is not.
        half = torch.empty(0, dtype=torch.bfloat16).set_(self._buffers[number].untyped_storage(), 0, x.shape)  # type: ignore[call-overload]
        name = self.constant(half)
        self.statics[number] = name
        other = self.number_of(x)
        assert other is not None
        self.statics[other] = name

    def _fused_line(self, call: FusedCall) -> StepLine:
        numbers = [call.numbers.get(name, 0) for name in call.names]
        params = np.array([_as_integer(value) for value in numbers], dtype=np.int64)
        self.constant((params, numbers))  # alive as long as the step
        named: list[int] = []
        words = [self._integer(int(params.ctypes.data))]
        halved = call.operands[call.half_operands] if call.numbers.get(call.half_flag) else []
        for operand in call.operands:
            size = 2 if any(operand is each for each in halved) else 4
            words.append(self._address(operand, size, named))
        words += [self._tensor_address(x, named) for x in call.tensors]
        function, left = self.constant(getattr(kernels(), call.kernel)), f"s{call.makes[0]}, z{call.makes[0]}"
        text = f"{function}({', '.join([*words, *call.words])})"
        others = [number for x in call.tensors if (number := self.number_of(x)) is not None]
        return StepLine(
            text, named, call.makes, single=False, writes=call.writes, left=left, needs=[*call.reads, *others]
        )

    def _address(self, operand: Operand | None, size: int, named: list[int]) -> str:
        if operand is None:
            return "0"
        if operand.root in self._buffers:
            return self._integer(self._buffers[operand.root].data_ptr() + size * operand.offset)
        named.append(operand.root)
        return "{}.data_ptr()" + (f"+{size * operand.offset}" if operand.offset else "")

    def _tensor_address(self, x: Tensor | None, named: list[int]) -> str:
        if x is None:
            return "0"
        number = self.number_of(x)
        if number is None:
            self.constant(x)  # alive as long as the step
            return self._integer(x.data_ptr())
        named.append(number)
        return "{}.data_ptr()"

    def _integer(self, value: int) -> str:
        """By name, so that the source is the same for every run of a model and is compiled once."""
        return self.constant(_Address(value))


class _Address(int):
    """An integer that is an object of its own, so that it gets a name of its own."""


def fuse_norm(step: Fusion, position: int, line: StepLine) -> FusedCall | None:
    call = line.call
    if call is None or not (is_call(line, rms_norm) or is_call(line, F.layer_norm)):
        return None
    x = call.args[0]
    weight, bias, eps, centre = _norm_settings(call)
    added = _added_rows(step, x, position)
    operands = [step.operand(part) for part in (added or (x,))]
    fits = all(each is not None and each.is_rows for each in operands)
    if not fits or not call.result.is_contiguous() or weight is None or weight.dtype != torch.float32:
        return None
    makes = [line.makes[0]]
    total = torch.empty_like(x)  # of a norm without a residual: nobody reads it
    if added is not None:
        makes.append(step.number_of(x))
        total = step.static(makes[1], x)
        step.drop(step.maker(x))  # type: ignore[arg-type]
    numbers = {
        "rows": operands[0].rows,  # type: ignore[union-attr]
        "width": x.shape[-1],
        "sum": total,
        "out": step.static(makes[0], call.result),
        "weight": weight.contiguous(),
        "bias": None if bias is None else bias.contiguous(),
        "centre": centre,
    }
    return FusedCall(
        "add_norm", kernels().ADD_NORM, numbers, [*operands, *[None] * (2 - len(operands))], [],  # type: ignore[union-attr]
        [repr(float(eps))], makes, numbers["rows"], "added_bf16", slice(1, 2),  # type: ignore[arg-type]
    )  # fmt: skip


def fuse_gate(step: Fusion, position: int, line: StepLine) -> FusedCall | None:
    call = line.call
    if call is None or not isinstance(call.result, Tensor) or not call.result.is_contiguous():
        return None
    gated = name_of(call.function) in ("mul", "__mul__")
    at = step.maker(call.args[0]) if gated else position
    inner = step.call_of(at)
    act = None if inner is None else _activation(inner)
    if act is None or inner is None or at is None or (gated and len(step.readers(line_output(step, at))) > 1):
        return None
    if not gated and any(_multiplies(step, reader) for reader in step.readers(line.makes[0])):
        return None  # the activation is fused when its product with the other half is reached
    parts = [inner.args[0], *(call.args[1:2] if gated else ())]
    operands = [step.operand(part) if isinstance(part, Tensor) else None for part in parts]
    if not all(each is not None and each.is_row_slice for each in operands):
        return None
    found = [each for each in operands if each is not None]
    if len({each.row_stride for each in found}) > 1 or len({each.like.shape for each in found}) > 1:
        return None
    if gated:
        step.drop(at)
    numbers = {
        "rows": found[0].rows,
        "width": found[0].like.shape[-1],
        "x_stride": found[0].row_stride,
        "out": step.static(line.makes[0], call.result),
        "act": kernels().ACTIVATION_CODES[act],  # type: ignore[union-attr]
        "gated": gated,
        "scratch": torch.empty(found[0].like.shape[-1]),
    }
    makes = [number for number in line.makes if number is not None]
    return FusedCall(
        "gate", kernels().GATE, numbers, [*found, *[None] * (2 - len(found))], [], [], makes,  # type: ignore[union-attr]
        found[0].rows, "in_bf16",
    )  # fmt: skip


def is_call(line: StepLine, function: Any) -> bool:
    return line.text is not None and line.call is not None and line.call.function is function


def line_output(step: Fusion, position: int) -> int | None:
    return step.lines[position].makes[0]


def _multiplies(step: Fusion, position: int) -> bool:
    call = step.lines[position].call
    return call is not None and name_of(call.function) in ("mul", "__mul__")


def _added_rows(step: Fusion, x: Any, position: int) -> tuple[Tensor, Tensor] | None:
    """The two tensors whose sum is x, if nobody reads it before the norm does."""
    at = step.maker(x)
    call = step.call_of(at)
    if at is None or call is None or name_of(call.function) not in ("add", "__add__"):
        return None
    if (
        len(call.args) != 2
        or call.kwargs
        or any(reader < position for reader in step.readers(step.number_of(x)))
    ):
        return None
    a, b = call.args
    same = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape == call.result.shape
    return (a, b) if same else None


def _as_integer(value: Any) -> int:
    if value is None:
        return 0
    return value.data_ptr() if isinstance(value, Tensor) else int(value)


def _norm_settings(call: TorchCall) -> tuple[Tensor | None, Tensor | None, float, bool]:
    """Weight, bias, eps, and whether the mean is subtracted."""
    if call.function is rms_norm:
        _, weight, eps, centred = call.args
        return (weight + 1.0 if centred else weight), None, eps, False
    settings = dict(_named(("x", "shape", "weight", "bias", "eps"), call.args)) | call.kwargs
    return settings.get("weight"), settings.get("bias"), float(settings.get("eps", 1e-5)), True


def _named(names: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    return zip(names, values, strict=False)


def _activation(call: TorchCall) -> str | None:
    if call.function is F.gelu:
        return "gelu_tanh" if call.kwargs.get("approximate") == "tanh" else "gelu"
    return ACTIVATION_NAMES.get(call.function)
