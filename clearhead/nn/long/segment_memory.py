"""Segment memory (Transformer-XL, Dai 2019): the inputs of each attention layer in earlier segments.

A cache keeps keys and values, for decoding. A segment memory keeps hidden states, for processing a long text
segment by segment: later segments attend to them, with keys and values computed anew and no gradient.

    memory = model.segment_memory(length=64)
    for segment in text_BT.split(32, dim=1):
        logits = model(segment, cache=memory)

Shape suffixes: B batch, T tokens of a segment, K tokens of the memory and the segment, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import InputError, UnsupportedError
from ..cache import KV, Cache, LayerCache


class LayerMemory(LayerCache):
    """One layer: the states of earlier segments, and those of the current one until the next one starts."""

    def __init__(self) -> None:
        super().__init__(capacity=None)
        self.past_BKD: Tensor | None = None
        self._now_BTD: Tensor | None = None

    def kv_inputs(self, x_BTD: Tensor) -> Tensor:
        """The states of earlier segments, followed by `x`. Further calls in a segment do the same."""
        self._now_BTD = x_BTD.detach()
        return x_BTD if self.past_BKD is None else torch.cat([self.past_BKD, x_BTD], dim=1)

    def append(self, k_BHTE: Tensor, v_BHTE: Tensor) -> KV:
        return k_BHTE, v_BHTE  # they already include those of the memory

    def append_routed(self, routed_BTE: Tensor) -> Tensor:
        raise UnsupportedError(
            "a segment memory does not keep which experts its tokens went to, so no capacity can be counted "
            "over segments; set Router(capacity=None)"
        )

    def end_segment(self, length: int) -> None:
        """Move the current segment into the memory, and keep the last `length` tokens."""
        if self._now_BTD is not None:
            both = [self._now_BTD] if self.past_BKD is None else [self.past_BKD, self._now_BTD]
            self.past_BKD, self._now_BTD = torch.cat(both, dim=1)[:, -length:], None

    def reorder(self, rows: Tensor, sources: Tensor | None, changed: Tensor | None) -> None:
        super().reorder(rows, sources, changed)
        self.past_BKD = None if self.past_BKD is None else self.past_BKD[rows]
        self._now_BTD = None if self._now_BTD is None else self._now_BTD[rows]


class SegmentMemory(Cache):
    """Memory of earlier segments: at most `limit` tokens. Pass it to each call of a text."""

    def __init__(self, depth: int, limit: int) -> None:
        if limit < 1:
            raise InputError(f"the segment memory is {limit} tokens long, expected 1 or more")
        super().__init__(depth)
        self.limit = limit
        self.memories = [LayerMemory() for _ in range(depth)]
        self.layers = list(self.memories)

    def blank(
        self, batch: int, width: int, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> SegmentMemory:
        """Start with states of zeros, as `transformers` does; the paper starts without any.

        The zeros are the input of attention. In a pre-norm model, those of `transformers` precede the norm.
        """
        for layer in self.memories:
            layer.past_BKD = torch.zeros(batch, self.limit, width, dtype=dtype, device=device)
        self.real_BK = torch.ones(batch, self.limit, dtype=torch.bool, device=device)
        return self

    def add_tokens(self, real_BT: Tensor) -> None:
        for layer in self.memories:
            layer.end_segment(self.limit)
        super().add_tokens(real_BT)
        assert self.real_BK is not None
        self.real_BK = self.real_BK[:, -self.limit :]

    def trim(self, length: int) -> None:
        raise UnsupportedError(
            "a segment memory drops older states, so it cannot be rolled back; a cache can"
        )
