"""Kernels: queries, keys and values in, mixed values out. One method, and a list of what it can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from ...errors import UnsupportedError
from ...spec import Spec
from ..tap import Recorder, Tap
from ..view import View
from ..work import Meeting, Work

QKV = tuple[Tensor, Tensor, Tensor]
Need = Literal["causal", "mask", "bias", "uneven", "pattern", "second"]
NEEDS: dict[Need, str] = {
    "causal": "a causal mask",
    "mask": "a mask (padding, window, documents)",
    "bias": "a bias on its scores",
    "uneven": "fewer queries than keys (a cache, or cross-attention)",
    "pattern": "to show its attention pattern",
    "second": "projections of their own for global tokens",
}
ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Call:
    """What a kernel was given once: enough to ask it again which weights it used."""

    kernel: Kernel
    q_BHQE: Tensor
    k_BHKE: Tensor
    v_BHKE: Tensor
    view: View
    bias: Tensor | None
    scale: float
    second: Callable[[], QKV] | None = None


class Kernel(nn.Module):
    """How values are mixed. `supports` names what it can honour; any other need is one clear error."""

    supports: ClassVar[frozenset[Need]]

    def forward(
        self,
        q_BHQE: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        *,
        view: View,
        bias: Tensor | None,
        scale: float,
        tap: Tap,
        second: Callable[[], QKV] | None = None,
    ) -> Tensor:
        """Keys and values may have fewer heads than queries; the answer has the queries' heads.

        `second` makes the queries, keys and values that global tokens look with, where they have their own.
        """
        unmet = _needs(view, bias, tap, second) - self.supports
        if unmet:
            asked = " and ".join(NEEDS[need] for need in sorted(unmet))
            raise UnsupportedError(
                f"{type(self).__name__.lstrip('_')} attention cannot take {asked}; "
                f"choose another kernel, or Softmax, which can"
            )
        tap.hears(Call(self, q_BHQE, k_BHKE, v_BHKE, view, bias, scale, second))
        if second is not None:
            return self.mix_two((q_BHQE, k_BHKE, v_BHKE), second, view=view, bias=bias, scale=scale, tap=tap)
        return self.mix(q_BHQE, k_BHKE, v_BHKE, view=view, bias=bias, scale=scale, tap=tap)

    def pattern(self, call: Call, heads: slice = ALL) -> Tensor:
        """(B, H, Q, K): the weights of some heads, or those its answer amounts to, from what it was given."""
        seen = Recorder()
        given = {"view": call.view, "bias": call.bias, "scale": call.scale, "second": call.second}
        self(call.q_BHQE, call.k_BHKE, call.v_BHKE, **given, tap=seen.tap("pattern"))
        return seen["pattern"][:, heads]

    def mix_two(
        self,
        first: QKV,
        second: Callable[[], QKV],
        *,
        view: View,
        bias: Tensor | None,
        scale: float,
        tap: Tap,
    ) -> Tensor:
        raise NotImplementedError

    def mix(
        self,
        q_BHQE: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        *,
        view: View,
        bias: Tensor | None,
        scale: float,
        tap: Tap,
    ) -> Tensor:
        raise NotImplementedError


class Mixing(Spec):
    """The choice of a kernel."""

    one_text: ClassVar[bool] = False  # it counts distances within a text: no use between two texts

    def build(self, heads: int, head_dim: int) -> Kernel:
        raise NotImplementedError

    def work(self, at: Meeting) -> Work:
        """What one call costs, as a formula; `nn/work.py` says how to write it."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it costs; give it a `work`")


def _needs(view: View, bias: Tensor | None, tap: Tap, second: object) -> set[Need]:
    asked: dict[Need, bool] = {
        "causal": view.is_causal,
        "mask": not view.is_open and not view.is_causal,
        "bias": bias is not None,
        "uneven": view.queries != view.keys,
        "pattern": tap.wants("pattern"),
        "second": second is not None,
    }
    return {need for need, wanted in asked.items() if wanted}
