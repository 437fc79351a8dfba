"""Fusion: the calls of a captured decode step in; the same step with fewer calls out.

Between two products a step makes many small torch calls. Those that `clearhead.engine.fused` can compute in
one pass are replaced; everything else stays as it was recorded.

    add, norm                                       ->  add_norm
    rotate q and k, write k and v, attention        ->  attend
    activation, times the other half                ->  gate
    int8 product of a row that one of these made    ->  the product alone: the row's range is known

A fused operator writes into a tensor of its own, allocated when the step is captured and reused in every
step. Its other operands are addresses: known ones, or those of tensors that a product just made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...engine.fused import kernels
from ...engine.int8 import INT8_LEVELS, AsymmetricProduct, int8_operator
from ...engine.products import Product, apply_product
from ...nn.norm import rms_norm
from ...nn.rope import rotate_pairs
from .line import Line

MOST_ROWS = 64  # for more, torch's threads are faster
ACTIVATIONS: dict[Any, str] = {F.silu: "silu", F.relu: "relu"}  # gelu is told by its argument
CUT = 2  # the dimension of tokens in keys and values


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


@dataclass
class Fusion:
    """Rewrites the lines of one step. `number_of` gives the number of a tensor made in the step."""

    lines: list[Line]
    number_of: Callable[[Any], int | None]
    constant: Callable[[Any], str]
    statics: dict[int, str] = field(default_factory=dict)  # tensors that are the same object in every step
    _statics: dict[int, Tensor] = field(default_factory=dict)
    _addresses: dict[int, int] = field(default_factory=dict)
    _ranges: dict[int, tuple[str, str]] = field(default_factory=dict)  # names of the range of a row

    def run(self) -> list[Line]:
        if kernels() is None or not any(_is(line, apply_product) for line in self.lines):
            return self.lines
        for position, line in enumerate(self.lines):
            for fuse in (self._attention, self._norm, self._gate):
                found = fuse(position, line)
                if found is not None:
                    self.lines[position] = found
                    break
        self.lines = [self._product(line) for line in self.lines if line.text is not None]
        return [line for line in self.lines if not self._is_static_view(line)]

    def _is_static_view(self, line: Line) -> bool:
        """Whether the line is a view of a static tensor, which then is static, too."""
        if line.view is None or line.reads[0] not in self._statics:
            return False
        number = line.makes[0]
        assert number is not None
        view = self._statics[line.reads[0]].as_strided(*line.view)
        self.statics[number] = self.constant(view)
        return True

    # What is replaced

    def _norm(self, position: int, line: Line) -> Line | None:
        call = line.call
        if call is None or not (_is(line, rms_norm) or _is(line, F.layer_norm)):
            return None
        x, settings = call.args[0], _norm_settings(call)
        summed = self._maker(x)
        parts = (x,)
        if summed is not None and self._adds_rows(summed) and self._unused_between(x, summed, position):
            parts = tuple(self.lines[summed].call.args[:2])  # type: ignore[union-attr]
        operands = [self._operand(part) for part in parts]
        weight, bias, eps, centre = settings
        fits = all(each is not None and each.is_rows for each in operands) and call.result.is_contiguous()
        if not fits or weight.dtype != torch.float32 or not weight.is_contiguous():
            return None
        makes = [*line.makes]
        out = self._static(line.makes[0], call.result)
        if len(parts) == 2:
            total = self._static(self.number_of(x), x)
            makes.append(self.number_of(x))
            self._drop(summed)
        else:
            total = torch.empty_like(x)
        rows = operands[0].rows  # type: ignore[union-attr]
        params = self._params(
            kernels().ADD_NORM,  # type: ignore[union-attr]
            rows=rows,
            width=x.shape[-1],
            sum=total,
            out=out,
            weight=weight,
            bias=bias,
            centre=centre,
            levels=self._levels(rows, line.makes[0]),
        )
        addresses, reads = self._address_words(operands)
        if len(parts) == 1:
            addresses.append("0")
        words = [str(params), *addresses, repr(float(eps))]
        return self._fused("add_norm", words, reads, makes, rows)

    def _gate(self, position: int, line: Line) -> Line | None:
        call = line.call
        if call is None:
            return None
        gated = _name(call.function) in ("mul", "__mul__")
        activation = self._maker(call.args[0]) if gated else position
        if activation is None or activation < 0:
            return None
        inner = self.lines[activation].call
        act = None if inner is None else _activation(inner)
        if act is None or inner is None:
            return None
        if gated and (len(self._readers(call.args[0])) > 1 or not isinstance(call.args[1], Tensor)):
            return None
        if not gated and any(
            _name(reader.call.function) in ("mul", "__mul__")
            for reader in self._readers(call.result)
            if reader.call is not None
        ):
            return None  # the multiplication is fused with it
        operands = [self._operand(inner.args[0]), self._operand(call.args[1]) if gated else None]
        x, other = operands
        if (
            x is None
            or not _is_row_slice(x.like)
            or (gated and (other is None or not _is_row_slice(other.like)))
        ):
            return None
        if other is not None and _row_stride(other.like) != _row_stride(x.like):
            return None
        if not call.result.is_contiguous():
            return None
        out = self._static(line.makes[0], call.result)
        if gated:
            self._drop(activation)
        params = self._params(
            kernels().GATE,  # type: ignore[union-attr]
            rows=x.rows,
            width=x.like.shape[-1],
            x_stride=_row_stride(x.like),
            out=out,
            act=kernels().ACTIVATION_CODES[act],  # type: ignore[union-attr]
            gated=gated,
            levels=self._levels(x.rows, line.makes[0]),
        )
        addresses, reads = self._address_words([each for each in (x, other) if each is not None])
        if other is None:
            addresses.append("0")
        return self._fused("gate", [str(params), *addresses], reads, line.makes, x.rows)

    def _attention(self, position: int, line: Line) -> Line | None:
        call = line.call
        if call is None or not _is(line, F.scaled_dot_product_attention):
            return None
        return _AttentionFusion(self, position, line).line()

    def _product(self, line: Line) -> Line:
        """Products without dispatch; of a single row whose range is known, without looking for it."""
        call = line.call
        if call is None or not _is(line, apply_product):
            return line
        x, product = call.args
        ranged = self._ranges.get(self.number_of(x) or -1)
        if isinstance(product, AsymmetricProduct) and ranged is not None:
            words = ("{}", *ranged, self.constant(product.matrix))
            return replace(line, text=f"{self.constant(int8_operator())}({', '.join(words)})")
        assert isinstance(product, Product)
        return replace(line, text=f"{self.constant(product.compute)}({{}})")

    # How lines hang together

    def _maker(self, x: Any) -> int | None:
        """The position of the line that makes a tensor."""
        number = self.number_of(x) if isinstance(x, Tensor) else None
        if number is None:
            return None
        return next(
            (i for i, line in enumerate(self.lines) if line.text is not None and number in line.makes), None
        )

    def _readers(self, x: Any) -> list[Line]:
        number = self.number_of(x)
        return [line for line in self.lines if line.text is not None and number in line.reads]

    def _unused_between(self, x: Tensor, first: int, last: int) -> bool:
        number = self.number_of(x)
        return not any(number in line.reads for line in self.lines[first + 1 : last] if line.text is not None)

    def _adds_rows(self, position: int) -> bool:
        call = self.lines[position].call
        if (
            call is None
            or _name(call.function) not in ("add", "__add__")
            or len(call.args) != 2
            or call.kwargs
        ):
            return False
        a, b = call.args
        return isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape == call.result.shape

    def _drop(self, position: int | None) -> None:
        assert position is not None
        self.lines[position] = replace(self.lines[position], text=None)

    def _operand(self, x: Tensor) -> Operand | None:
        """Where a tensor of the step is; None for one from outside, or if its memory is not known."""
        number = self.number_of(x)
        if number is None:
            return None
        for line in self.lines:
            if line.view is not None and number in line.makes:
                return Operand(line.reads[0], line.view[2], x)
        return Operand(number, 0, x) if x.storage_offset() == 0 else None

    # What is written

    def _static(self, number: int | None, like: Tensor) -> Tensor:
        """A tensor for the output of a fused operator, which stands for this number from now on."""
        assert number is not None
        out = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        self.statics[number] = self.constant(out)
        self._statics[number] = out
        self._addresses[number] = out.data_ptr()
        return out

    def _levels(self, rows: int, number: int | None) -> int:
        """The int8 levels of the row if a product wants its range, else 0."""
        wanted = any(
            isinstance(line.call.args[1], AsymmetricProduct)
            for line in self.lines
            if line.call is not None and _is(line, apply_product) and self._is_of(line.call.args[0], number)
        )
        return INT8_LEVELS if wanted and rows == 1 else 0

    def _is_of(self, x: Tensor, number: int | None) -> bool:
        """Whether a tensor is this one, or a view of all of it."""
        where = self._operand(x)
        return where is not None and where.root == number

    def _params(self, names: Sequence[str], **values: Any) -> int:
        """The address of an array of these values; tensors become their addresses, what is missing 0."""
        numbers = [values.get(name, 0) for name in names]
        kept = np.array([_number(value) for value in numbers], dtype=np.int64)
        self.constant((kept, numbers))  # alive as long as the step
        return int(kept.ctypes.data)

    def _address_words(self, operands: Sequence[Operand | None]) -> tuple[list[str], list[int]]:
        """Source for the addresses of operands, and the numbers of the tensors it reads."""
        words, reads = [], []
        for operand in operands:
            assert operand is not None
            offset = operand.offset * operand.like.element_size()
            if operand.root in self._addresses:
                words.append(str(self._addresses[operand.root] + offset))
            else:
                words.append(f"{{}}.data_ptr()+{offset}")
            reads.append(operand.root)
        # A static operand is not named in the text, but its line must come first and must be kept.
        return words, reads

    def _fused(
        self, kernel: str, words: list[str], reads: list[int], makes: Sequence[int | None], rows: int
    ) -> Line:
        """The line of a fused operator. Of a single row it returns the step and the zero point for int8."""
        out = makes[0]
        names = (f"s{out}", f"z{out}")
        if out is not None and rows == 1:
            self._ranges[out] = names
            for line in self.lines:  # a view of all of it has the same range
                if line.view is not None and line.reads[0] == out and line.view[2] == 0:
                    self._ranges[line.makes[0]] = names  # type: ignore[index]
        function = self.constant(getattr(kernels(), kernel))
        named = [number for number in reads if number not in self._addresses]
        return Line(
            f"{function}({', '.join(words)})",
            named,
            list(makes),
            single=False,
            writes=False,
            left=", ".join(names),
            needs=reads,
        )


class _AttentionFusion:
    """One attention call of a step: where its queries, keys and values come from."""

    def __init__(self, step: Fusion, position: int, line: Line) -> None:
        self.step, self.position, self.sdpa = step, position, line
        self.dropped: list[int] = []

    def line(self) -> Line | None:
        step, call = self.step, self.sdpa.call
        assert call is not None
        (q, k, v), mask = call.args[:3], call.args[3] if len(call.args) > 3 else call.kwargs.get("attn_mask")
        out = call.result
        if call.kwargs.get("dropout_p") or call.kwargs.get("is_causal") or q.dtype != torch.float32:
            return None
        if q.shape[-1] != v.shape[-1] or len(q) * q.shape[2] > MOST_ROWS:
            return None
        keys, values = self._cached(k), self._cached(v)
        if keys is None or values is None or out.stride(-1) != 1:
            return None
        q_from, q_turn = self._rotated(q)
        where = step._operand(q_from)
        if where is None or q_from.stride(-1) != 1:
            return None
        new = self._appended(keys, values)
        if new is None and keys.grows:
            return None
        operands, angles = [where], q_turn
        if new is not None:
            k_from, k_turn = self._rotated(new[0])
            if (k_turn is None) != (q_turn is None):
                return None
            found = [step._operand(k_from), step._operand(new[1])]
            if any(each is None or each.like.stride(-1) != 1 for each in found):
                return None
            operands += found  # type: ignore[arg-type]
        elif q_turn is not None:
            return None
        if mask is not None and (mask.dtype not in (torch.bool, torch.float32) or mask.stride(-1) != 1):
            return None
        return self._fused(operands, angles, keys, values, mask)

    def _fused(
        self, operands: list[Operand], angles: Any, keys: _Cached, values: _Cached, mask: Tensor | None
    ) -> Line:
        step, call = self.step, self.sdpa.call
        assert call is not None
        q, out = operands[0].like, call.result
        for position in self.dropped:
            step._drop(position)
        static = step._static(self.sdpa.makes[0], out)
        appended = operands[1:] if len(operands) == 3 else [operands[0], operands[0]]
        batch, heads, queries, width = q.shape
        longest = keys.tensor.shape[CUT]
        sizes = {
            "batch": batch, "heads": heads, "kv_heads": keys.tensor.shape[1], "queries": queries,
            "head_dim": width, "append": len(operands) == 3, "rotated": 0 if angles is None else angles[0].shape[-1],
            "neighbours": angles is not None and angles[2] == "neighbours",
            "angle_batch": angles[0].stride(0) if angles is not None and len(angles[0]) > 1 else 0,
            "length": keys.length, "grows": keys.grows, "window": keys.window,
            "keys": keys.tensor, "values": values.tensor, "out": static,
            "scores": torch.empty(longest + 2 * width + 64),
            "levels": step._levels(batch * queries, self.sdpa.makes[0]),
        }  # fmt: skip
        sizes |= _strides("q", q, batch=0, head=1, query=2)
        sizes |= _strides("k", appended[0].like, batch=0, head=1) | _strides(
            "v", appended[1].like, batch=0, head=1
        )
        sizes |= _strides("keys", keys.tensor, batch=0, head=1, token=2)
        sizes |= _strides("values", values.tensor, batch=0, head=1, token=2)
        sizes |= _strides("out", static, batch=0, head=1, query=2)
        addresses, reads = step._address_words([operands[0], *appended])
        others: list[Tensor] = [] if angles is None else [angles[0], angles[1]]
        if mask is not None:
            sizes["mask_kind"] = 1 if mask.dtype == torch.bool else 2
            sizes |= _strides("mask", mask.expand(batch, heads, queries, -1), batch=0, head=1, query=2)
        words = [str(step._params(kernels().ATTEND, **sizes)), *addresses]  # type: ignore[union-attr]
        for x in others or [None, None]:
            words.append(self._word(x, reads))
        words += [self._word(mask, reads), "n", repr(float(self._scale(q)))]
        fused = step._fused("attend", words, reads, self.sdpa.makes, batch * queries)
        return replace(fused, writes=len(operands) == 3)

    def _word(self, x: Tensor | None, reads: list[int]) -> str:
        if x is None:
            return "0"
        number = self.step.number_of(x)
        if number is None:
            return str(x.data_ptr()) if self.step.constant(x) else "0"
        reads.append(number)
        return "{}.data_ptr()"

    def _scale(self, q: Tensor) -> float:
        assert self.sdpa.call is not None
        scale = self.sdpa.call.kwargs.get("scale")
        return float(q.shape[-1]) ** -0.5 if scale is None else float(scale)

    def _cached(self, x: Tensor) -> _Cached | None:
        """Keys or values that lie in a tensor from outside: the KV cache, or those of the encoder output."""
        step = self.step
        if step.number_of(x) is None:
            return _Cached(x, x.shape[CUT], grows=0, window=0) if x.stride(-1) == 1 else None
        maker = step._maker(x)
        if maker is None:
            return None
        made, window = step.lines[maker], 0
        if made.call is not None and _name(made.call.function) == "__getitem__":
            window = _window(made.call.args[1])
            maker = step._maker(made.call.args[0])
            if not window or maker is None:
                return None
            self.dropped.append(step.lines.index(made))
            made = step.lines[maker]
        call, before = made.call, made.before
        if call is None or before is None or _name(call.function) != "narrow" or len(call.args) != 4:
            return None
        tensor, dim, start, length = call.args
        if step.number_of(tensor) is not None or dim != CUT or start != 0 or tensor.stride(-1) != 1:
            return None
        self.dropped.append(maker)
        return _Cached(tensor, length, grows=length - before.args[3], window=window)

    def _appended(self, keys: _Cached, values: _Cached) -> tuple[Tensor, Tensor] | None:
        """The new key and value that are written to the end of the cache before this call."""
        found = [self._written(cached) for cached in (keys, values)]
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    def _written(self, cached: _Cached) -> Tensor | None:
        for position in range(self.position - 1, -1, -1):
            line = self.step.lines[position]
            if line.text is None or line.call is None or _name(line.call.function) != "copy_":
                continue
            target, source = line.call.args[:2]
            maker = self.step._maker(target)
            made = None if maker is None else self.step.lines[maker].call
            if made is None or _name(made.function) != "narrow" or made.args[0] is not cached.tensor:
                continue
            _, dim, start, count = made.args
            if dim != CUT or count != 1 or start != cached.length - 1:
                return None
            self.dropped += [position, maker]  # type: ignore[list-item]
            assert isinstance(source, Tensor)
            return source
        return None

    def _rotated(self, x: Tensor) -> tuple[Tensor, Any]:
        """The tensor before rotation, and (cos, sin, pairing); (x, None) if it was not rotated."""
        maker = self.step._maker(x)
        line = None if maker is None else self.step.lines[maker]
        if line is None or line.call is None or not _is(line, rotate_pairs) or len(self.step._readers(x)) > 1:
            return x, None
        self.dropped.append(maker)  # type: ignore[arg-type]
        source, cos, sin, pairing = line.call.args
        return source, (cos, sin, pairing)


@dataclass(frozen=True)
class _Cached:
    tensor: Tensor
    length: int  # keys at the second recorded step
    grows: int  # by how many a step
    window: int  # the last so many keys; 0: all


def _is(line: Line, function: Any) -> bool:
    return line.text is not None and line.call is not None and line.call.function is function


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", ""))


def _number(value: Any) -> int:
    if value is None:
        return 0
    return value.data_ptr() if isinstance(value, Tensor) else int(value)


def _strides(name: str, x: Tensor, **dims: int) -> dict[str, int]:
    return {f"{name}_{dim}": x.stride(axis) for dim, axis in dims.items()}


def _norm_settings(call: Any) -> tuple[Tensor, Tensor | None, float, bool]:
    """Weight, bias, eps, and whether the mean is subtracted."""
    if call.function is rms_norm:
        _, weight, eps, centred = call.args
        return (weight + 1.0 if centred else weight), None, eps, False
    settings = dict(zip(("x", "shape", "weight", "bias", "eps"), call.args, strict=False)) | call.kwargs
    weight = settings.get("weight")
    assert isinstance(weight, Tensor)
    return weight, settings.get("bias"), float(settings.get("eps", 1e-5)), True


def _activation(call: Any) -> str | None:
    if call.function is F.gelu:
        return "gelu_tanh" if call.kwargs.get("approximate") == "tanh" else None
    return ACTIVATIONS.get(call.function)


def _window(index: Any) -> int:
    """The length of a slice [:, :, -length:]; 0 if the index is another."""
    everything = slice(None)
    if isinstance(index, tuple) and len(index) == 3 and index[0] == index[1] == everything:
        last = index[2]
        if (
            isinstance(last, slice)
            and last.stop is None
            and last.step is None
            and isinstance(last.start, int)
        ):
            return max(-last.start, 0)
    return 0


def _row_stride(x: Tensor) -> int:
    """The distance of rows; of a single row any will do."""
    return 0 if x.numel() == x.shape[-1] else x.stride(-2) if x.shape[-2] > 1 else x.stride(0)


def _is_row_slice(x: Tensor) -> bool:
    """Whether it is float32 rows at equal distances: (R, 1, width), cut from the rows of a product."""
    if x.dtype != torch.float32 or x.stride(-1) != 1 or x.numel() // x.shape[-1] > MOST_ROWS:
        return False
    return x.ndim == 3 and (x.shape[1] == 1 or x.shape[0] == 1)
