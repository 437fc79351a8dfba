"""Attention kernels: one call (queries, keys, values, mask, bias, scale) in, weighted values out.

A kernel is one method, `attend`, and a list of what it supports.
Shape suffixes: B batch, H heads, Q queries, K keys, E head width. Keys and values may have fewer heads than
queries, which then share them.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from ...errors import UnsupportedError
from ...spec import Spec
from ..cache import State
from ..cost import AttentionShape, PartCost
from ..counting import count_cost
from ..layers import apply_dropout
from ..masks import Causal, Everyone
from ..tap import OFF, Recorder, Tap
from ..view import Outline, View

if TYPE_CHECKING:
    from .block_summaries import Summaries

Need = Literal["causal", "padding", "documents", "window", "mask", "bias", "uneven", "pattern", "second"]
NEEDS: dict[Need, str] = {
    "causal": "a causal mask",
    "padding": "a mask of padding",
    "documents": "a mask of packed texts",
    "window": "a mask with a window",
    "mask": "a mask of any kind",
    "bias": "a bias on its scores",
    "uneven": "fewer queries than keys (a cache, or cross-attention)",
    "pattern": "to show its attention pattern",
    "second": "projections of their own for global tokens",
}
MASKS: frozenset[Need] = frozenset({"padding", "documents", "window"})  # implied by the support of any mask
ALL = slice(None)


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """The arguments of one call of a kernel."""

    q_BHQE: Tensor
    k_BHKE: Tensor
    v_BHKE: Tensor
    view: View  # the mask, and the positions of queries and keys
    bias: Tensor | None = None  # (1 or B, 1 or H, Q, K), added to the scores
    scale: float = 1.0
    # The same call with the projections that global tokens use, where they have their own (Longformer).
    second: Callable[[], AttentionCall] | None = None
    summaries: Summaries | None = None  # of blocks of tokens, which are attended to as well (LongT5)

    @property
    def heads_per_kv(self) -> int:
        """How many query heads share one key/value head."""
        return self.q_BHQE.shape[1] // self.k_BHKE.shape[1]

    def repeat_kv(self) -> AttentionCall:
        """The same call with one key/value head for each query head."""
        heads = self.q_BHQE.shape[1]
        if self.k_BHKE.shape[1] == self.v_BHKE.shape[1] == heads:
            return self
        k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (self.k_BHKE, self.v_BHKE))
        return replace(self, k_BHKE=k, v_BHKE=v)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedCall(AttentionCall):
    """A call and its kernel, so that the attention weights can be computed later."""

    kernel: Kernel

    def pattern(self, heads: slice = ALL) -> Tensor:
        """(B, H, Q, K): the attention weights of some heads."""
        return self.kernel.pattern(self, heads)


class Kernel(nn.Module):
    """The module of an `AttentionKernel`. `supports` lists what it can handle; anything else is an error."""

    name: str  # as messages and trace files call it: the class name without underscore and suffix

    supports: ClassVar[frozenset[Need]]
    cache_kind: ClassVar[Literal["keys", "state"]] = "keys"  # what a cache holds for it between two calls
    looks_ahead: ClassVar[bool] = False  # True: later tokens influence which pairs are computed (LSH)
    is_replayable: ClassVar[bool] = False  # True: decode steps make the same torch calls, only sizes differ
    takes_prefix: ClassVar[bool] = True  # whether further keys may stand before those of a text
    counts_slots: ClassVar[bool] = False  # True: which keys a query meets depends on how far apart they stand
    reasons: ClassVar[dict[Need, str]] = {}  # why something is not supported, for error messages
    is_normalised: bool = True  # whether the weights of a query are non-negative and sum to one

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__name__.lstrip("_").removesuffix("Kernel")

    def forward(self, call: AttentionCall, tap: Tap = OFF) -> Tensor:
        """(B, H, Q, E), with the heads of the queries."""
        self.require(needs(call.view, call.bias, tap, call.second))
        if tap is not OFF:
            tap.record_call(RecordedCall(**{**vars(call), "kernel": self}))
        return self.attend(call, tap)

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        """The algorithm. If `tap.wants("pattern")`, it also reports the weights it uses."""
        raise NotImplementedError

    def step(self, call: AttentionCall, state: State | None = None, tap: Tap = OFF) -> tuple[Tensor, State]:
        """As `forward`, for a kernel that keeps a state: keys and values are of the new tokens alone."""
        self.require(needs(call.view, call.bias, tap) - {"uneven"})
        if tap.wants("pattern"):
            raise UnsupportedError(
                f"{self.name} attention keeps a running state in its cache, not keys: "
                f"to see its pattern, run the whole text at once, without a cache"
            )
        return self.attend_step(call, state)

    def attend_step(self, call: AttentionCall, state: State | None) -> tuple[Tensor, State]:
        """The algorithm over new tokens, starting from the state of all earlier ones."""
        raise NotImplementedError

    def require(self, needs: AbstractSet[Need]) -> None:
        """Raise a one-line error for what it cannot handle."""
        unmet = needs - self.supports - (MASKS if "mask" in self.supports else frozenset())
        if unmet:
            instead = "choose another kernel, or Softmax, which can"
            raise_unsupported(f"{self.name} attention", unmet, self.reasons, instead)

    def pattern(self, call: AttentionCall, heads: slice = ALL) -> Tensor:
        """(B, H, Q, K): the attention weights of some heads, or the weights that the output implies."""
        seen = Recorder()
        self(call, seen.tap("pattern"))
        return seen["pattern"][:, heads]


class AttentionKernel(Spec):
    """The spec of a kernel: which algorithm computes attention."""

    one_text: ClassVar[bool] = False  # True: works within one text only, so not for cross-attention

    def build(self, heads: int, head_dim: int) -> Kernel:
        raise NotImplementedError

    def cost(self, at: AttentionShape) -> PartCost:
        """The cost of one call: a formula (`nn/cost.py` explains how to write one) or, as here, measured."""
        return _counted(self, at)

    def cached(self, at: AttentionShape) -> int:
        """How many numbers the KV cache of a layer holds at `keys` keys."""
        return at.batch * at.kv_heads * at.keys * (at.head_dim + at.value_dim)


@lru_cache(maxsize=256)  # layers of a model share one kernel and one shape, and `plan` calls this often
def _counted(spec: AttentionKernel, at: AttentionShape) -> PartCost:
    slots = torch.arange(at.keys, device="meta")[None]
    mask = Everyone() if at.rule == "open" else Causal()
    view = View(mask, at.batch, slots[:, at.keys - at.queries :], slots, at.keys - at.queries)
    shapes = [
        (at.batch, at.heads, at.queries, at.head_dim),
        (at.batch, at.kv_heads, at.keys, at.head_dim),
        (at.batch, at.kv_heads, at.keys, at.value_dim),
    ]
    run = lambda kernel, q, k, v: kernel(AttentionCall(q, k, v, view))  # noqa: E731
    return count_cost(
        spec,
        lambda: spec.build(at.heads, at.head_dim),
        run,
        shapes,
        at,
        inputs_count="here",
        outputs_count="here",
    )


def replaced_output(tap: Tap, plain_BHQK: Tensor, v_BGKE: Tensor, dropout: float = 0.0) -> Tensor | None:
    """Show the weights to a tap. If it returns others, the output those give; otherwise None.

    Recording must not change the output in any digit: unless weights were replaced, the kernel's own
    algorithm computes it.
    """
    seen = tap("pattern", plain_BHQK)
    if seen is plain_BHQK:
        return None
    return apply_weights(seen, v_BGKE, dropout)


def apply_weights(weights_BHQK: Tensor, v_BGKE: Tensor, dropout: float = 0.0) -> Tensor:
    """Weights times values; several query heads may share a value head."""
    groups = weights_BHQK.shape[1] // v_BGKE.shape[1]
    return apply_dropout(weights_BHQK, dropout) @ v_BGKE.repeat_interleave(groups, dim=1)


def raise_unsupported(who: str, unmet: AbstractSet[Need], reasons: dict[Need, str], instead: str) -> None:
    """Raise a one-line error if a requirement is not supported."""
    if unmet:
        wording = " and ".join(NEEDS[need] for need in sorted(unmet))
        reason = "; ".join(reasons[need] for need in sorted(unmet) if need in reasons)
        raise UnsupportedError(f"{who} cannot take {wording}{f' ({reason})' if reason else ''}; {instead}")


def needs(view: View, bias: Tensor | None, tap: Tap, second: object = None) -> frozenset[Need]:
    """What a call requires of the kernel."""
    uneven = view.queries != view.keys
    return _needs(view.outline, uneven, bias is not None, tap.wants("pattern"), second is not None)


@lru_cache(maxsize=256)  # called by every layer at every step, with few distinct results
def _needs(outline: Outline, *others: bool) -> frozenset[Need]:
    uneven, bias, pattern, second = others
    needs: dict[Need, bool] = {
        "causal": outline.causal,
        "padding": outline.padding,
        "documents": outline.packed,
        "window": outline.window is not None,
        "mask": outline.more,
        "bias": bias,
        "uneven": uneven,
        "pattern": pattern,
        "second": second,
    }
    return frozenset(need for need, wanted in needs.items() if wanted)
