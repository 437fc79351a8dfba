"""Kernels that work on whole texts: each text of a batch comes to them as a row of its own.

They need not know of padding or packing, and they need not draw the weights they amount to: an answer that is
linear in the values *is* a matrix times the values, and the values that make it visible are the identity.
Shape suffixes: B batch, R texts, H heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..norm import widen
from ..tap import Tap
from ..view import View
from ..work import Meeting, Work
from .kernel import Kernel, changed
from .texts import texts


@dataclass(frozen=True, eq=False)
class Rows:
    """What a kernel may ask about its rows besides their numbers."""

    causal: bool
    before: Tensor | int  # how many keys of its text stand before the first query: an int, or one for each
    real_RK: Tensor | None = None  # which keys are there; texts end at different lengths


def kept(at: Meeting, numbers: int) -> Work:
    """So many numbers of every head of every text are kept; half precision is widened first."""
    return Work(saved=max(at.number, 4) * at.batch * at.heads * numbers if at.training else 0)


class ByText(Kernel):
    def rows(self, q_RHQE: Tensor, k_RHKE: Tensor, v_RHKE: Tensor, *, about: Rows, scale: float) -> Tensor:
        """The mix of whole texts. Behind the end of a text keys and values are zeros, answers are unused."""
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
        group = q_BHQE.shape[1] // k_BHKE.shape[1]
        k_BHKE, v_BHKE = (x.repeat_interleave(group, dim=1) for x in (k_BHKE, v_BHKE))
        answer = partial(self._answer, q_BHQE, k_BHKE, view=view, scale=scale)
        if tap.wants("pattern"):
            each = torch.eye(view.keys, dtype=v_BHKE.dtype, device=v_BHKE.device)
            implied = answer(each.expand(*v_BHKE.shape[:2], -1, -1))
            if (other := changed(tap, implied, v_BHKE)) is not None:
                return other
        return answer(v_BHKE)

    def _answer(self, q_BHQE: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, *, view: View, scale: float) -> Tensor:
        q, k, v = (widen(x) for x in (q_BHQE, k_BHKE, v_BHKE))
        causal, found = view.outline.causal, texts(view)
        if found is None:
            before = view.keys - view.queries if causal else 0
            return self.rows(q, k, v, about=Rows(causal, before), scale=scale).type_as(q_BHQE)
        asking, offered = found.queries, found.keys
        q, k, v = (
            side.take(x.transpose(1, 2)).transpose(1, 2)
            for side, x in ((asking, q), (offered, k), (offered, v))
        )
        before_R = offered.real_RL.sum(1) - asking.real_RL.sum(1)
        mixed = self.rows(q, k, v, about=Rows(causal, before_R, offered.real_RL), scale=scale)
        return asking.put(mixed.transpose(1, 2)).transpose(1, 2).type_as(q_BHQE)
