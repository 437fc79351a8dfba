"""One pass through a model in; what every attention was given, and the stream after every layer, out.

The answer is the one the model gives unwatched, bit for bit: kernels say what they were given and compute
as always; weights are computed later, for the layers and heads somebody asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError, UnsupportedError
from ..nn.kernels.kernel import ALL, RecordedCall
from ..nn.model import PairModel, SingleModel
from ..nn.tap import OFF, Tap
from .clone import chain_taps

AttentionKind = Literal["self", "decoder", "cross"]


@dataclass
class ForwardRecord:
    """What one pass left behind. Addresses are those of taps: `decoder.blocks.3.cross`."""

    answer: Tensor  # what the model said, the batch of one taken off
    calls: dict[str, RecordedCall] = field(default_factory=dict)
    streams: dict[str, Tensor] = field(default_factory=dict)  # `tower.embed`, `tower.blocks.0.out`, ...

    def depth(self, side: str) -> int:
        return sum(1 for name in self.streams if name.startswith(f"{side}.blocks."))

    def call(self, address: str) -> RecordedCall:
        if address not in self.calls:  # a layer may mix its tokens in another way
            layer = address.split(".")[2]
            raise InputError(f"layer {layer} has no attention to look at; it mixes its tokens in another way")
        return self.calls[address]

    def pattern(self, address: str, heads: slice = ALL) -> Tensor:
        """(H, Q, K) of one attention."""
        call = self.call(address)
        try:
            with torch.no_grad():
                return call.pattern(heads)[0].float()
        except UnsupportedError:
            name = call.kernel.name
            raise InputError(f"{name} attention cannot say which weights its answer amounts to") from None


def record_forward(
    model: SingleModel | PairModel,
    ids: Sequence[int],
    target: Sequence[int] | None = None,
    *,
    types: Sequence[int] | None = None,
    tap: Tap = OFF,
) -> ForwardRecord:
    """Run one text (and, for a pair of towers, what the decoder is fed). `tap` may change things."""
    seen: dict[str, Tensor] = {}
    calls: dict[str, RecordedCall] = {}

    def keep(address: str, x: Tensor) -> Tensor:
        if _is_stream(address):
            seen[address] = x.detach()[0]
        return x

    def hear(address: str, call: RecordedCall) -> None:
        calls[address] = replace(call, q_BHQE=call.q_BHQE.detach(), k_BHKE=call.k_BHKE.detach())

    watch = chain_taps(tap, Tap("*.out", keep, hear=hear), Tap("*.embed", keep))
    device = next(model.parameters()).device
    source = torch.tensor([list(ids)], device=device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            if isinstance(model, PairModel):
                assert target is not None
                answer = model(source, torch.tensor([list(target)], device=device), tap=watch)
            else:
                kinds = None if types is None else torch.tensor([list(types)], device=device)
                answer = model(source, types=kinds, tap=watch)
    finally:
        model.train(was_training)
    return ForwardRecord(answer[0], calls, seen)


def _is_stream(address: str) -> bool:
    """The stream itself, not what a sub-layer adds to it."""
    parts = address.split(".")
    return len(parts) == 2 or (len(parts) == 4 and parts[1] == "blocks")
