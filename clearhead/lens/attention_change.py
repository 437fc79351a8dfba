"""Change of attention: two traces of one text in; how much of the attention of every head moved, out.

The distance of two rows of weights is half the sum of their absolute differences (total variation): the share
of the attention that went elsewhere, 0 to 1. Virtual tokens (prefix and prompt tuning) are one more key.

Shape suffixes: L layers, H heads, Q queries, K keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .record import AttentionKind
from .trace_data import TraceData

VIRTUAL_LABEL = "virtual tokens"


@dataclass(frozen=True)
class MovedLink:
    """The weight of one head that changed most: from a query to a key, before and after."""

    layer: int
    head: int
    query: str
    key: str
    before: float
    after: float
    query_index: int
    key_index: int  # -1: the virtual tokens


@dataclass(frozen=True, eq=False)
class AttentionChange:
    """One kind of attention. Heads whose weights cannot be compared are NaN."""

    kind: AttentionKind
    address: str  # of its layers: "tower.blocks.{}.attn"
    moved_LH: Tensor  # the mean distance of the rows
    links: tuple[MovedLink, ...]  # one for each head, those of the heads that moved most first
    virtual_LH: Tensor | None  # share of the attention that goes to virtual tokens now, and did not before
    reasons: tuple[str, ...] = ()  # why layers were left out

    @property
    def is_known(self) -> bool:
        return not bool(self.moved_LH.isnan().all())


def attention_changes(before: TraceData, after: TraceData) -> dict[AttentionKind, AttentionChange]:
    """All kinds of attention that both models have, with as many layers."""
    kinds = [
        kind for kind in after.kinds if kind in before.kinds and before.layers(kind) == after.layers(kind)
    ]
    return {kind: _change(kind, before, after) for kind in kinds}


def _change(kind: AttentionKind, before: TraceData, after: TraceData) -> AttentionChange:
    moved, shares, links, reasons = list[Tensor](), list[Tensor](), list[MovedLink](), dict[str, None]()
    for layer in range(after.layers(kind)):
        found: list[tuple[float, float, MovedLink]] = []
        try:
            found = _layer_changes(before, after, kind, layer)
        except InputError as error:
            reasons[str(error).removeprefix(f"layer {layer} ")] = None
        moved.append(torch.tensor([distance for distance, _, _ in found]))
        shares.append(torch.tensor([share for _, share, _ in found]))
        links += [link for _, _, link in found]
    width = max(1, *(len(x) for x in moved))
    moved_LH, shares_LH = (torch.stack([_padded(x, width) for x in rows]) for rows in (moved, shares))
    order = sorted(links, key=lambda link: -float(moved_LH[link.layer, link.head]))
    has_virtual = any(after.address(kind, 0) in trace.record.virtual for trace in (before, after))
    return AttentionChange(
        kind,
        after.info.kinds[kind],
        moved_LH,
        tuple(order),
        shares_LH if has_virtual else None,
        tuple(reasons),
    )


def _layer_changes(
    before: TraceData, after: TraceData, kind: AttentionKind, layer: int
) -> list[tuple[float, float, MovedLink]]:
    """For each head: the distance of its rows, what virtual tokens gained, the weight that changed most."""
    one_HQ, two_HQ = (_virtual_weights(trace, kind, layer) for trace in (before, after))
    if len(one_HQ) != len(two_HQ):
        raise InputError(f"the models have {len(one_HQ)} and {len(two_HQ)} heads")
    rows, columns = after.labels(kind)
    names, found = [VIRTUAL_LABEL, *columns], []
    for head in range(len(two_HQ)):
        one, two = (
            torch.cat([virtual_HQ[head][:, None], trace.attention(kind, layer, head).cpu()], dim=1)
            for trace, virtual_HQ in ((before, one_HQ), (after, two_HQ))
        )
        change_QK = two - one
        query, key = divmod(int(change_QK.abs().argmax()), one.shape[1])
        weights = float(one[query, key]), float(two[query, key])
        link = MovedLink(layer, head, rows[query], names[key], *weights, query, key - 1)
        distance = float(0.5 * change_QK.abs().sum(-1).mean())
        found.append((distance, float(change_QK[:, 0].mean()), link))
    return found


def _virtual_weights(trace: TraceData, kind: AttentionKind, layer: int) -> Tensor:
    """(H, Q): the weights of all virtual tokens together; zeros where there are none."""
    if trace.address(kind, layer) in trace.record.virtual:
        return trace.virtual_attention(kind, layer).sum(-1).cpu()
    call = trace.call(kind, layer)
    return torch.zeros(call.q_BHQE.shape[1], len(trace.sides(kind)[0]))


def _padded(x_H: Tensor, heads: int) -> Tensor:
    return torch.cat([x_H, x_H.new_full((heads - len(x_H),), math.nan)])
