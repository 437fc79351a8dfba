"""Window attention: softmax over the neighbours alone, in work that grows with length times window.

The same as `Softmax` under `Attention.window`, which is a rule of some families (Mistral, Gemma): here it is
the choice of a kernel, so that it can be put into any model. Either way no pair outside is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from ...errors import SpecError, UnsupportedError
from .. import masks
from ..tap import Tap
from ..view import View
from ..work import Meeting, Work
from .kernel import ALL, Call, Kernel
from .softmax import Exact, _Softmax


@dataclass(frozen=True, kw_only=True)
class Window(Exact):
    """At most `left` tokens back and `right` ahead, oneself always; a causal mask allows none ahead."""

    one_text: ClassVar[bool] = True
    left: int
    right: int | None = None  # None: as many as to the left

    def check(self) -> None:
        super().check()
        if self.left < 0 or (self.right or 0) < 0:
            raise SpecError(f"Window(left={self.left}, right={self.right}): 0 or more tokens to each side")

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Window(self, heads)

    def work(self, at: Meeting) -> Work:
        window = self.left, self.left if self.right is None else self.right
        return super().work(replace(at, window=window, rule="mask"))


class _Window(_Softmax):
    is_replayable = False  # whether blocks pay is decided by the length

    def __init__(self, spec: Window, heads: int) -> None:
        super().__init__(spec, heads)
        self.rule = masks.Window(spec.left, spec.left if spec.right is None else spec.right)

    def pattern(self, call: Call, heads: slice = ALL) -> Tensor:
        return super().pattern(replace(call, view=call.view.under(self.rule)), heads)

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
        if view.globals_BK is not None:
            raise UnsupportedError("Window attention has no global tokens; Longformer attention has")
        view = view.under(self.rule)
        return super().mix(q_BHQE, k_BHKE, v_BHKE, view=view, bias=bias, scale=scale, tap=tap)
