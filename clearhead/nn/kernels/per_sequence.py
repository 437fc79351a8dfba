"""Base of the kernels that work on whole sequences: each text of a batch becomes a row of its own.

Such a kernel does not handle padding or packing, nor does it compute attention weights: its output is linear
in the values, that is, a matrix times the values. With the identity as values, the output is that matrix.
Shape suffixes: B batch, R rows (sequences), H heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..cost import AttentionShape, PartCost
from ..norm import widen
from ..tap import Tap
from .kernel import AttentionCall, Kernel, replaced_output
from .sequences import sequences


@dataclass(frozen=True, eq=False)
class RowInfo:
    """What a kernel knows about its rows."""

    causal: bool
    before: Tensor | int  # how many keys of a row precede its first query: an int, or one for each row
    real_RK: Tensor | None = None  # which keys exist; rows end at different lengths


def kept_per_row(at: AttentionShape, numbers: int) -> PartCost:
    """`numbers` numbers per head and row are kept; half precision is converted to float32 first."""
    return PartCost(saved=max(at.number, 4) * at.batch * at.heads * numbers if at.training else 0)


class PerSequenceKernel(Kernel):
    takes_prefix = False

    def attend_rows(
        self, q_RHQE: Tensor, k_RHKE: Tensor, v_RHKE: Tensor, *, info: RowInfo, scale: float
    ) -> Tensor:
        """Attention within each row. After the end of a row, keys and values are zeros and outputs unused."""
        raise NotImplementedError

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        call = call.repeat_kv()
        if tap.wants("pattern"):
            v = call.v_BHKE
            each = torch.eye(call.view.keys, dtype=v.dtype, device=v.device).expand(*v.shape[:2], -1, -1)
            implied = self._attend(replace(call, v_BHKE=each))
            if (other := replaced_output(tap, implied, v)) is not None:
                return other
        return self._attend(call)

    def _attend(self, call: AttentionCall) -> Tensor:
        q, k, v = (widen(x) for x in (call.q_BHQE, call.k_BHKE, call.v_BHKE))
        view, scale = call.view, call.scale
        causal, found = view.outline.causal, sequences(view)
        if found is None:
            before = view.keys - view.queries if causal else 0
            return self.attend_rows(q, k, v, info=RowInfo(causal, before), scale=scale).type_as(call.q_BHQE)
        asking, offered = found.queries, found.keys
        q, k, v = (
            side.take(x.transpose(1, 2)).transpose(1, 2)
            for side, x in ((asking, q), (offered, k), (offered, v))
        )
        info = RowInfo(causal, offered.length_S - asking.length_S, offered.real_SL)
        mixed = self.attend_rows(q, k, v, info=info, scale=scale)
        return asking.put(mixed.transpose(1, 2)).transpose(1, 2).type_as(call.q_BHQE)
