"""The attention of a captured decode step: rotations, writes into the KV cache and attention as one call.

q, k = rotate_pairs(...)             keys and values lie in a tensor from outside: the KV cache,
cache[length - 1] = k, v       ->    of which one more is used in every step, or the projected
scaled_dot_product_attention         encoder output, which stays the same
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...engine import kernels
from ...nn import STEP_BYTES, from_stored, rotate_pairs, to_stored
from .fusion import MOST_ROWS, FusedCall, Fusion, Operand, is_call
from .line import StepLine, TorchCall, name_of

MOST_ROWS_OF_STORED = 64  # torch has to restore all keys and values, the fused operator reads them as stored
KEY_AXIS = 2  # the dimension of tokens in keys and values
Angles = tuple[Tensor, Tensor, str]  # cosines, sines, and which channels rotate together


@dataclass(frozen=True)
class _Cached:
    """Keys or values from outside the step."""

    tensor: Tensor
    length: int  # how many are used, in the second recorded step
    grows: int  # by how many a step
    window: int  # how many of the last are used; 0: all
    precision: str  # in which it is stored


def fuse_attention(step: Fusion, position: int, line: StepLine) -> FusedCall | None:
    if not is_call(line, F.scaled_dot_product_attention):
        return None
    return _AttentionCall(step, position, line).fused()


class _AttentionCall:
    """One call of attention, and the lines that lead to it."""

    def __init__(self, step: Fusion, position: int, line: StepLine) -> None:
        assert line.call is not None
        self.step, self.position, self.line, self.call = step, position, line, line.call
        self.replaced: list[int] = []  # positions of the lines that the fused operator replaces

    def fused(self) -> FusedCall | None:
        q, k, v = self.call.args[:3]
        if not self._is_plain(q, v):
            return None
        keys, values = self._cached(k), self._cached(v)
        if keys is None or values is None or keys.length != values.length:
            return None
        most = MOST_ROWS if keys.precision == "float32" else MOST_ROWS_OF_STORED
        if keys.precision != values.precision or len(q) * q.shape[2] > most:
            return None
        operands, angles = self._operands(q, keys, values)
        if operands is None or not self._replaces_all():
            return None
        for position in self.replaced:
            self.step.drop(position)
        return self._fused_call(operands, angles, keys, values)

    def _replaces_all(self) -> bool:
        """Whether nothing else reads what the replaced lines make, such as a bias made from the keys."""
        step, own = self.step, {self.position, *self.replaced}
        return all(set(step.readers(step.lines[i].makes[0])) <= own for i in self.replaced)

    def _is_plain(self, q: Tensor, v: Tensor) -> bool:
        options, mask = self.call.kwargs, self._mask()
        if options.get("dropout_p") or options.get("is_causal") or q.dtype != torch.float32:
            return False
        if q.shape[-1] != v.shape[-1] or self.call.result.stride(-1) != 1:
            return False
        return mask is None or (mask.dtype in (torch.bool, torch.float32) and mask.stride(-1) == 1)

    def _mask(self) -> Tensor | None:
        return self._mask_of(self.call)

    def _mask_of(self, call: TorchCall | None) -> Tensor | None:
        assert call is not None
        mask = call.args[3] if len(call.args) > 3 else call.kwargs.get("attn_mask")
        return mask if isinstance(mask, Tensor) else None

    def _operands(
        self, q: Tensor, keys: _Cached, values: _Cached
    ) -> tuple[list[Operand] | None, Angles | None]:
        """Queries, and the new key and value if there are; before rotation."""
        q_source, angles = self._before_rotation(q)
        sources = [q_source]
        if keys.grows:
            k, v = self._written(keys), self._written(values)
            if k is None or v is None:
                return None, None
            k_source, k_angles = self._before_rotation(k)
            if (k_angles is None) != (angles is None):
                return None, None
            sources += [k_source, v]
        elif angles is not None:
            return None, None
        found = [self.step.operand(source) for source in sources]
        if any(each is None or each.like.stride(-1) != 1 for each in found):
            return None, None
        return [each for each in found if each is not None], angles

    def _fused_call(
        self, operands: list[Operand], angles: Angles | None, keys: _Cached, values: _Cached
    ) -> FusedCall:
        q, mask = operands[0].like, self._mask()
        new = operands[1:] or [operands[0], operands[0]]
        batch, heads, queries, width = q.shape
        out = self.step.static(self.line.makes[0], self.call.result)
        numbers: dict[str, Any] = {
            "batch": batch, "heads": heads, "kv_heads": keys.tensor.shape[1], "queries": queries,
            "head_dim": width, "append": len(operands) == 3,
            "length": keys.length, "grows": keys.grows, "window": keys.window,
            "keys": keys.tensor, "values": values.tensor, "out": out,
            "scores": torch.empty(keys.tensor.shape[KEY_AXIS] + 2 * width + 64),
            "stored": kernels().STORED.index(keys.precision),  # type: ignore[union-attr]
            "step_at": keys.tensor.shape[-1] - STEP_BYTES,
            **_strides("q", q, batch=0, head=1, query=2),
            **_strides("k", new[0].like, batch=0, head=1),
            **_strides("v", new[1].like, batch=0, head=1),
            **_strides("keys", keys.tensor, batch=0, head=1, token=2),
            **_strides("values", values.tensor, batch=0, head=1, token=2),
            **_strides("out", out, batch=0, head=1, query=2),
        }  # fmt: skip
        if angles is not None:
            cos, _, pairing = angles
            numbers |= {"rotated": cos.shape[-1], "neighbours": pairing == "neighbours"}
            numbers["angle_batch"] = cos.stride(0) if len(cos) > 1 else 0
        if mask is not None:
            numbers |= {"mask_kind": 1 if mask.dtype == torch.bool else 2} | self._mask_strides(mask, q)
        return FusedCall(
            "attend",
            kernels().ATTEND,  # type: ignore[union-attr]
            numbers,
            [operands[0], *new],
            [*(angles[:2] if angles is not None else (None, None)), mask],
            ["n", repr(self._scale(width))],
            [number for number in self.line.makes if number is not None],
            batch * queries,
            "in_bf16",
            writes=len(operands) == 3,
        )

    def _mask_strides(self, mask: Tensor, q: Tensor) -> dict[str, int]:
        """Rows of a mask over all keys are one number longer in every step, and so are its strides."""
        previous = self._mask_of(self.line.before)
        assert previous is not None
        now, before = (
            _strides("mask", x.expand(*q.shape[:3], x.shape[-1]), batch=0, head=1, query=2)
            for x in (mask, previous)
        )
        return now | {f"{name}_grows": stride - before[name] for name, stride in now.items()}

    def _scale(self, width: int) -> float:
        scale = self.call.kwargs.get("scale")
        return float(width) ** -0.5 if scale is None else float(scale)

    def _cached(self, x: Tensor) -> _Cached | None:
        """Keys or values that lie in a tensor from outside, whole or up to a length; maybe the last only."""
        step, window, precision = self.step, 0, "float32"
        at = step.maker(x)
        call = step.call_of(at)
        if call is not None and name_of(call.function) == "__getitem__" and (window := _last(call.args[1])):
            self._replace(at)
            x = call.args[0]
            at = step.maker(x)
            call = step.call_of(at)
        if call is not None and call.function is from_stored:
            self._replace(at)
            x, precision = call.args[:2]
            at = step.maker(x)
            call = step.call_of(at)
        if x.stride(-1) != 1:
            return None
        if step.number_of(x) is None:
            return None if window else _Cached(x, x.shape[KEY_AXIS], 0, 0, precision)
        if at is None or call is None or name_of(call.function) != "narrow" or len(call.args) != 4:
            return None
        before = step.lines[at].before
        tensor, dim, start, length = call.args
        if before is None or step.number_of(tensor) is not None or (dim, start) != (KEY_AXIS, 0):
            return None
        self._replace(at)
        return _Cached(tensor, length, length - before.args[3], window, precision)

    def _written(self, cached: _Cached) -> Tensor | None:
        """The new key or value, which is written to the end of the cache before this call."""
        for position in range(self.position - 1, -1, -1):
            call = self.step.call_of(position)
            if call is None or self.step.lines[position].text is None or name_of(call.function) != "copy_":
                continue
            target, source = call.args[:2]
            at = self.step.maker(target)
            made = self.step.call_of(at)
            if made is None or name_of(made.function) != "narrow" or made.args[0] is not cached.tensor:
                continue
            if tuple(made.args[1:]) != (KEY_AXIS, cached.length - 1, 1):
                return None
            self._replace(position)
            self._replace(at)
            return self._before_storing(source) if isinstance(source, Tensor) else None
        return None

    def _before_storing(self, x: Tensor) -> Tensor | None:
        """A new key or value before it was stored; None if it is stored by something else."""
        at = self.step.maker(x)
        call = self.step.call_of(at)
        if call is None or call.function is not to_stored:
            return x
        self._replace(at)
        source = call.args[0]
        return source if isinstance(source, Tensor) else None

    def _before_rotation(self, x: Tensor) -> tuple[Tensor, Angles | None]:
        """The tensor before rotation, and its angles; (x, None) if there is none to fuse."""
        at = self.step.maker(x)
        if at is None or not is_call(self.step.lines[at], rotate_pairs):
            return x, None
        if len(self.step.readers(self.step.number_of(x))) > 1:
            return x, None
        call = self.step.call_of(at)
        assert call is not None
        self._replace(at)
        source, cos, sin, pairing = call.args
        return source, (cos, sin, pairing)

    def _replace(self, position: int | None) -> None:
        assert position is not None
        self.replaced.append(position)


def _strides(name: str, x: Tensor, **dims: int) -> dict[str, int]:
    return {f"{name}_{dim}": x.stride(axis) for dim, axis in dims.items()}


def _last(index: Any) -> int:
    """The length of a slice [:, :, -length:]; 0 if the index is another."""
    if (
        not isinstance(index, tuple)
        or len(index) != KEY_AXIS + 1
        or index[:KEY_AXIS] != (slice(None), slice(None))
    ):
        return 0
    last = index[KEY_AXIS]
    if not isinstance(last, slice) or last.stop is not None or last.step is not None:
        return 0
    return max(-last.start, 0) if isinstance(last.start, int) else 0
