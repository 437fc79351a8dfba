"""Kernels: queries, keys and values in, mixed values out. One method, and a list of what it can do."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UnsupportedError
from ...spec import Spec
from ..cache import State
from ..masks import Causal, Everyone
from ..tap import OFF, Recorder, Tap
from ..view import Outline, View
from ..work import Meeting, Work
from .counted import counted

QKV = tuple[Tensor, Tensor, Tensor]
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
MASKS: frozenset[Need] = frozenset({"padding", "documents", "window"})  # whoever can take any mask, can these
ALL = slice(None)
_BYTES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


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
    keeps: ClassVar[Literal["keys", "state"]] = "keys"  # what a cache holds for it between two calls
    foresight: ClassVar[bool] = False  # True: later tokens, though unseen, help to decide who is met (LSH)
    is_replayable: ClassVar[bool] = False  # True: decode steps make the same torch calls, only sizes differ
    why: ClassVar[dict[Need, str]] = {}  # why it cannot do what it does not, where a reason helps
    shares: bool = True  # whether its weights are shares: none below zero, and one in all for each query

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
        self.require(needs(view, bias, tap, second))
        if tap is not OFF:
            tap.hears(Call(self, q_BHQE, k_BHKE, v_BHKE, view, bias, scale, second))
        if second is not None:
            return self.mix_two((q_BHQE, k_BHKE, v_BHKE), second, view=view, bias=bias, scale=scale, tap=tap)
        return self.mix(q_BHQE, k_BHKE, v_BHKE, view=view, bias=bias, scale=scale, tap=tap)

    def step(
        self,
        q_BHTE: Tensor,
        k_BHTE: Tensor,
        v_BHTE: Tensor,
        *,
        view: View,
        bias: Tensor | None,
        scale: float,
        tap: Tap,
        state: State | None,
    ) -> tuple[Tensor, State]:
        """As `forward`, for a kernel that keeps a state: keys and values are of the new tokens alone."""
        self.require(needs(view, bias, tap) - {"uneven"})
        if tap.wants("pattern"):
            raise UnsupportedError(
                f"{type(self).__name__.lstrip('_')} attention keeps a running state in its cache, not keys: "
                f"to see its pattern, run the whole text at once, without a cache"
            )
        return self.carry(q_BHTE, k_BHTE, v_BHTE, view=view, scale=scale, state=state)

    def carry(
        self, q_BHTE: Tensor, k_BHTE: Tensor, v_BHTE: Tensor, *, view: View, scale: float, state: State | None
    ) -> tuple[Tensor, State]:
        raise NotImplementedError

    def require(self, asked: AbstractSet[Need]) -> None:
        """Refuse, in one sentence, what it cannot honour."""
        unmet = asked - self.supports - (MASKS if "mask" in self.supports else frozenset())
        if unmet:
            name = type(self).__name__.lstrip("_")
            refuse(f"{name} attention", unmet, self.why, "choose another kernel, or Softmax, which can")

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
        """What one call costs; as a formula (`nn/work.py` says how to write it) or, without one, counted."""
        with torch.device("meta"):
            kernel = self.build(at.heads, at.head_dim)
            q, k, v = (
                torch.empty(at.batch, heads, tokens, width, dtype=_BYTES[at.number])
                for heads, tokens, width in (
                    (at.heads, at.queries, at.head_dim),
                    (at.kv_heads, at.keys, at.head_dim),
                    (at.kv_heads, at.keys, at.value_dim),
                )
            )
            place = torch.arange(at.keys)[None]
        mask = Everyone() if at.rule == "open" else Causal()
        view = View(mask, at.batch, place[:, at.keys - at.queries :], place, at.keys - at.queries)
        call = partial(kernel, view=view, bias=None, scale=1.0, tap=OFF)
        try:
            return counted(kernel.to(q.dtype), call, [q, k, v], training=at.training)
        except RuntimeError:  # it looks at numbers
            name = type(self).__name__
            raise UnsupportedError(f"{name} does not say what it costs; give it a `work`") from None

    def cached(self, at: Meeting) -> int:
        """How many numbers a decoding run has kept when it has come to so many keys."""
        return at.batch * at.kv_heads * at.keys * (at.head_dim + at.value_dim)


def changed(tap: Tap, plain_BHQK: Tensor, v_BGKE: Tensor, dropout: float = 0.0) -> Tensor | None:
    """Show the weights; where a watcher put others in their place, the answer those give.

    Watching must not move the answer, not even in the last digit: otherwise it is the kernel's own.
    """
    seen = tap("pattern", plain_BHQK)
    if seen is plain_BHQK:
        return None
    return weighed(seen, v_BGKE, dropout)


def weighed(weights_BHQK: Tensor, v_BGKE: Tensor, dropout: float = 0.0) -> Tensor:
    """Weights times values; several heads may share a value."""
    groups = weights_BHQK.shape[1] // v_BGKE.shape[1]
    return F.dropout(weights_BHQK, dropout) @ v_BGKE.repeat_interleave(groups, dim=1)


def refuse(who: str, unmet: AbstractSet[Need], why: dict[Need, str], instead: str) -> None:
    """One sentence, if there is anything unmet."""
    if unmet:
        asked = " and ".join(NEEDS[need] for need in sorted(unmet))
        reason = "; ".join(why[need] for need in sorted(unmet) if need in why)
        raise UnsupportedError(f"{who} cannot take {asked}{f' ({reason})' if reason else ''}; {instead}")


def needs(view: View, bias: Tensor | None, tap: Tap, second: object = None) -> frozenset[Need]:
    """What a call asks of whoever answers it."""
    uneven = view.queries != view.keys
    return _needs(view.outline, uneven, bias is not None, tap.wants("pattern"), second is not None)


@lru_cache(maxsize=256)  # every layer asks at every step, and there are but a few answers
def _needs(outline: Outline, *others: bool) -> frozenset[Need]:
    uneven, bias, pattern, second = others
    asked: dict[Need, bool] = {
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
    return frozenset(need for need, wanted in asked.items() if wanted)
