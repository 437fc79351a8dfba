"""Window attention: softmax over the neighbours alone. Cost grows with length times window.

The same as `Softmax` with `Attention.window`, which some families have (Mistral, Gemma): here it is a kernel,
so that it can be put into any model. Either way no pair outside of the window is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from ...errors import SpecError, UnsupportedError
from .. import masks
from ..cost import AttentionShape, PartCost
from ..tap import Tap
from .kernel import ALL, AttentionCall, Kernel
from .softmax import SoftmaxKernel, SoftmaxSpec


@dataclass(frozen=True, kw_only=True)
class Window(SoftmaxSpec):
    """At most `left` tokens back and `right` ahead; a causal mask allows none ahead."""

    one_text: ClassVar[bool] = True
    left: int
    right: int | None = None  # None: as many as to the left

    def check(self) -> None:
        super().check()
        if self.left < 0 or (self.right or 0) < 0:
            raise SpecError(f"Window(left={self.left}, right={self.right}): 0 or more tokens to each side")

    def build(self, heads: int, head_dim: int) -> Kernel:
        return _Window(self, heads)

    def cost(self, at: AttentionShape) -> PartCost:
        window = self.left, self.left if self.right is None else self.right
        return super().cost(replace(at, window=window, rule="mask"))


class _Window(SoftmaxKernel):
    is_replayable = False  # whether blocks pay is decided by the length

    def __init__(self, spec: Window, heads: int) -> None:
        super().__init__(spec, heads)
        self.rule = masks.SlidingWindow(spec.left, spec.left if spec.right is None else spec.right)

    def pattern(self, call: AttentionCall, heads: slice = ALL) -> Tensor:
        return super().pattern(replace(call, view=call.view.restrict(self.rule)), heads)

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        if call.view.globals_BK is not None:
            raise UnsupportedError("Window attention has no global tokens; Longformer attention has")
        return super().attend(replace(call, view=call.view.restrict(self.rule)), tap)
