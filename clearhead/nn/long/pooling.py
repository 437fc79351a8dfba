"""Pooling between layers (Funnel Transformer, Dai 2020): a stream in, a stream of half as many tokens out.

    layers 0, 1      a b c d e f g h     one state per token
    layers 2, 3      a  bc  de  fg       pairs became one
    layers 4, 5      a   bcde            and again
    layer 6          a b c d e f g h     restored: the state of a token's group, plus its own after layer 1

Every text is pooled by itself, wherever padding or other texts of its row stand. A group has the position and
the segment type of its first token. Pooled tokens are aligned to the left, padding follows them.
Shape suffixes: B batch, T tokens, P tokens after pooling, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ...errors import InputError, SpecError
from ...spec import Count, Spec
from ..attention import Attention
from ..block import Block
from ..context import Context
from ..masks import CrossDocuments, Documents, Everyone, Mask, Padding, segment_positions
from ..view import View

PoolGroups = Literal["pairs", "first-alone", "first-alone-drop-last"]


@dataclass(frozen=True, kw_only=True)
class Pooling(Spec):
    """Where a tower halves its sequence, and how.

    `groups` is "pairs" (tokens 0 and 1, 2 and 3, ...), "first-alone" (0, then 1 and 2, ...) or
    "first-alone-drop-last" (the same without the last token of a text of more than two).
    `pooled` is "queries" (the first layer after it attends to the tokens before it) or "all".
    """

    before: tuple[Count, ...]  # the layers that read half as many tokens as the layer before them
    restore: Count | None = None  # the layer that reads one state per token again; None: no layer does
    groups: PoolGroups = "first-alone-drop-last"
    reduce: Literal["mean", "max"] = "mean"
    pooled: Literal["queries", "all"] = "queries"

    def check(self) -> None:
        order = (*self.before, *(() if self.restore is None else (self.restore,)))
        if not self.before or list(order) != sorted(set(order)):
            raise SpecError(
                f"Pooling has before={self.before} and restore={self.restore}; expected one layer or more, "
                f"in ascending order"
            )

    def check_blocks(self, blocks: Sequence[Block]) -> None:
        """Raise a one-line error if a tower of these layers cannot have it."""
        last = max(self.before[-1], self.restore or 0)
        if last >= len(blocks):
            raise SpecError(f"Pooling names layer {last}; the tower has layers 0 to {len(blocks) - 1}")
        for i in self.before if self.pooled == "queries" else ():
            mixer = blocks[i].attention
            plain = isinstance(mixer, Attention) and mixer.project == "each" and mixer.window is None
            if not plain or blocks[i].order != "post":
                raise SpecError(
                    f"layer {i} pools its queries: it needs attention with project='each', without a window, "
                    f"and order='post'; or choose pooled='all'"
                )

    @property
    def first_is_alone(self) -> bool:
        return self.groups != "pairs"

    def bind(self, view: View, segment_BT: Tensor | None, depth: int) -> PooledLayers:
        """The views of all layers, for the tokens of one call."""
        allowed = all(isinstance(part, Padding | Documents) for part in view.mask.parts())
        if not allowed:
            raise InputError("a tower that pools takes a mask of padding or of packed texts, no other")
        return PooledLayers(self, view, segment_BT, depth)

    def views_of_text(self, length: int, depth: int, device: torch.device | None = None) -> list[View]:
        """The views of all layers, for one text alone."""
        slots = torch.arange(length, device=device)[None]
        return self.bind(View(Everyone(), 1, slots, slots), None, depth).views

    def lengths(self, length: int, depth: int) -> list[int]:
        """How many states every layer returns for a text of `length` tokens."""
        return [view.queries for view in self.views_of_text(length, depth)]

    def groups_of_tokens(self, length: int, depth: int) -> list[tuple[Tensor, Tensor]]:
        """For every layer, which query and which key stands for each token of a text; -1: none does."""
        views = self.views_of_text(length, depth)
        return [
            (_standing_for(view.q_pos[0], length), _standing_for(view.k_pos[0], length)) for view in views
        ]


@dataclass(frozen=True, eq=False)
class _Grouping:
    """The groups of a sequence: the slots of the first and of the last token of each, one or two tokens."""

    first_BP: Tensor
    last_BP: Tensor
    segment_BP: Tensor | None  # below zero: no group

    def pool(self, x_BTD: Tensor, reduce: Literal["mean", "max"]) -> Tensor:
        # A group of one token is that token twice.
        first, last = _take(x_BTD, self.first_BP), _take(x_BTD, self.last_BP)
        return torch.maximum(first, last) if reduce == "max" else (first + last) / 2


class PooledLayers:
    """A pooling bound to one call: the view of every layer, and what happens to the stream before it."""

    def __init__(self, spec: Pooling, view: View, segment_BT: Tensor | None, depth: int) -> None:
        self.spec, self.views = spec, [view] * depth
        self._groupings: dict[int, _Grouping] = {}
        self._unpooled: Tensor | None = None  # the stream before the first pooling
        whole, whole_segment_BT, origin_BP = view, segment_BT, None
        for count, layer in enumerate(spec.before, 1):
            grouping = _group(spec.groups, view.keys, segment_BT)
            pooled = _pooled_view(spec, view, grouping, 2**count)
            self.views[layer:] = [pooled] * (depth - layer)
            if spec.pooled == "queries":
                self.views[layer] = _pooled_queries(view, pooled, segment_BT, grouping.segment_BP)
            first_BP = grouping.first_BP
            origin_BP = first_BP if origin_BP is None else origin_BP.gather(1, first_BP)
            view, segment_BT, self._groupings[layer] = pooled, grouping.segment_BP, grouping
        if spec.restore is not None and origin_BP is not None:
            self._group_BT = _group_of_each(spec, whole.keys, whole_segment_BT, origin_BP, segment_BT)
            self.views[spec.restore :] = [whole] * (depth - spec.restore)
            segment_BT = whole_segment_BT
        self.segment_BT = segment_BT  # of the tokens of the output

    def enter(self, layer: int, x_BTD: Tensor, ctx: Context) -> tuple[Tensor, Context]:
        """The stream and the context as this layer reads them."""
        if layer == self.spec.restore and self._unpooled is not None:
            # A token that was dropped has no group: it keeps its own state alone.
            group_BT = self._group_BT.to(x_BTD.device)
            added = _take(x_BTD, group_BT.clamp(min=0)).masked_fill((group_BT < 0)[..., None], 0.0)
            return self._unpooled + added, ctx
        grouping = self._groupings.get(layer)
        if grouping is None:
            return x_BTD, ctx
        if self._unpooled is None:
            self._unpooled = x_BTD
        pooled = grouping.pool(x_BTD, self.spec.reduce)
        return pooled, replace(ctx, source=x_BTD) if self.spec.pooled == "queries" else ctx


def _group(groups: PoolGroups, length: int, segment_BT: Tensor | None) -> _Grouping:
    """The groups of every text. Without segments all rows are alike: one row is computed, on the CPU."""
    texts_BT = torch.zeros(1, length, dtype=torch.long) if segment_BT is None else segment_BT
    real_BT, index_BT = texts_BT >= 0, segment_positions(texts_BT)
    following_BT = segment_positions(texts_BT.flip(1)).flip(1)  # how many tokens of its text come after it
    end_BT = following_BT == 0
    if groups == "first-alone-drop-last":
        short_BT = index_BT + following_BT < 2
        real_BT, end_BT = real_BT & (short_BT | ~end_BT), torch.where(short_BT, end_BT, following_BT == 1)
    odd_BT = index_BT % 2 == 1
    begins_BT = ~odd_BT if groups == "pairs" else odd_BT | (index_BT == 0)
    ends_BT = end_BT | (odd_BT if groups == "pairs" else ~odd_BT)
    count_B = (begins_BT & real_BT).sum(1)
    longest = max(1, int(count_B.max()))
    first_BP, last_BP = (_slots(flags_BT & real_BT, longest) for flags_BT in (begins_BT, ends_BT))
    segment_BP = None
    if segment_BT is not None:
        missing_BP = torch.arange(longest, device=segment_BT.device) >= count_B[:, None]
        segment_BP = segment_BT.gather(1, first_BP).masked_fill(missing_BP, -1)
    return _Grouping(first_BP, last_BP, segment_BP)


def _slots(flags_BT: Tensor, count: int) -> Tensor:
    """The slots with a flag, in their order; any, where a row has fewer than `count`."""
    return flags_BT.long().argsort(dim=1, descending=True, stable=True)[:, :count]


def _pooled_view(spec: Pooling, view: View, grouping: _Grouping, size: int) -> View:
    """The view of layers whose queries and keys are groups of `size` tokens."""
    first_BP, segment_BP = grouping.first_BP, grouping.segment_BP
    # Groups are `size` apart, that of the first token as well, which may stand alone.
    index_BP = torch.arange(first_BP.shape[1], device=view.k_pos.device)[None]
    if segment_BP is not None:
        index_BP = segment_positions(segment_BP)
    pos_BP = index_BP * size + (1 - size if spec.first_is_alone else 0)
    mask: Mask = Everyone()
    if segment_BP is not None:
        packed = any(isinstance(part, Documents) for part in view.mask.parts())
        mask = Documents(segment_BP) if packed else Padding(segment_BP >= 0)
    types_BP = None if view.k_types is None else _take(view.k_types[..., None], first_BP)[..., 0]
    return View(mask, view.batch, pos_BP, pos_BP, q_types=types_BP, k_types=types_BP, step=size)


def _pooled_queries(view: View, pooled: View, segment_BT: Tensor | None, segment_BP: Tensor | None) -> View:
    """The view of a layer whose queries are pooled and whose keys are not."""
    mask = view.mask
    if isinstance(pooled.mask, Documents) and segment_BT is not None and segment_BP is not None:
        mask = CrossDocuments(segment_BP, segment_BT)
    return replace(
        view, mask=mask, q_pos=pooled.q_pos, q_types=pooled.q_types, is_cross=True,
        _restricted={}, _attn_masks={},
    )  # fmt: skip


def _group_of_each(
    spec: Pooling,
    length: int,
    segment_BT: Tensor | None,
    origin_BP: Tensor,
    segment_BP: Tensor | None,
) -> Tensor:
    """(B, T): the group that each token restores its state from; -1 where it was dropped.

    `origin_BP` are the slots of the first tokens of all groups.
    """
    texts_BT = torch.zeros(1, length, dtype=torch.long) if segment_BT is None else segment_BT
    index_BT, slot_T = segment_positions(texts_BT), torch.arange(length, device=texts_BT.device)
    size, offset = 2 ** len(spec.before), 1 if spec.first_is_alone else 0
    begins_BT = (index_BT == 0) | ((index_BT - offset) % size == 0)
    first_BT = torch.where(begins_BT & (texts_BT >= 0), slot_T, 0).cummax(1).values
    group_BP = torch.arange(origin_BP.shape[1], device=texts_BT.device).expand_as(origin_BP)
    if segment_BP is not None:
        # What is no group names no token: a further slot behind the text.
        origin_BP = torch.where(segment_BP >= 0, origin_BP, length)
    none_BT = torch.full((len(origin_BP), length + 1), -1, device=texts_BT.device)
    return none_BT.scatter(1, origin_BP, group_BP).gather(1, first_BT)


def _standing_for(pos_P: Tensor, length: int) -> Tensor:
    """(T,): which of the groups at these positions each token of a text is in; -1 where it was dropped."""
    token_T, size = torch.arange(length), int(pos_P[1] - pos_P[0]) if len(pos_P) > 1 else length
    group_T = torch.searchsorted(pos_P, token_T, right=True) - 1
    return torch.where(token_T - pos_P[group_T] < size, group_T, -1)


def _take(x_BTD: Tensor, slot_BP: Tensor) -> Tensor:
    """The vectors in these slots; one row of slots is for all rows."""
    slot_BP = slot_BP.to(x_BTD.device)
    # Indexing, not `gather`, which would keep the whole input for its backward pass.
    if len(slot_BP) == 1:
        return x_BTD[:, slot_BP[0]]
    return x_BTD[torch.arange(len(x_BTD), device=x_BTD.device)[:, None], slot_BP]
