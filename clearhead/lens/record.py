"""One pass through a model in; what every attention was given, and the stream after every layer, out.

The answer is the one the model gives unwatched, bit for bit: kernels say what they were given and compute
as always; weights are computed later, for the layers and heads somebody asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch
from torch import Tensor

from ..errors import InputError, UnsupportedError
from ..nn import OFF, Tap, TransformerModel
from ..nn.kernels import ALL, RecordedCall
from .clone import chain_taps
from .tokens import Token

AttentionKind = Literal["self", "decoder", "cross"]


@dataclass(frozen=True)
class TraceInput:
    """What a model was given: ids, their tokens, and, for a decoder of its own, the same once more."""

    ids: Sequence[int] | Tensor  # or what else the first tower reads: frames, pixels
    tokens: list[Token]
    types: Sequence[int] | None = None
    target_ids: Sequence[int] | Tensor | None = None
    target_tokens: list[Token] | None = None
    prompt: int = 1  # number of tokens (of the target, if there is one) that were given, not generated

    def arguments(self, device: torch.device, rows: int = 1) -> tuple[list[Tensor], dict[str, Tensor]]:
        """As the model is called: the inputs of its towers, and segment types; `rows` times the same."""

        def batch(ids: Sequence[int] | Tensor) -> Tensor:
            one = ids if isinstance(ids, Tensor) else torch.tensor(list(ids))
            return one.to(device).expand(rows, *one.shape)

        inputs = [batch(ids) for ids in (self.ids, self.target_ids) if ids is not None]
        return inputs, {} if self.types is None else {"types": batch(self.types)}


@dataclass(frozen=True)
class ModelInfo:
    """What must be known of a model to read a trace of it."""

    title: str
    kinds: dict[AttentionKind, str]  # kind of attention -> its addresses: "decoder.blocks.{}.cross"
    generates: bool  # one token after another
    has_head: bool  # the answer is a guess (words, labels), not the last states


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


def model_info(model: TransformerModel, title: str) -> ModelInfo:
    has_head = model.head is not None
    return ModelInfo(title, attention_addresses(model), generates=model.spec.generates, has_head=has_head)


def attention_addresses(model: TransformerModel) -> dict[AttentionKind, str]:
    """The kinds of attention: self-attention of the first tower ("self") and of further ones, by their names,
    and cross-attention, each with the address of its layers."""
    kinds: dict[str, str] = {}
    for name, tower in model.stacks.items():
        kinds[name if kinds else "self"] = f"{name}.blocks.{{}}.attn"
        if any(block.cross is not None for block in tower.spec.pattern):
            kinds["cross"] = f"{name}.blocks.{{}}.cross"
    return cast("dict[AttentionKind, str]", kinds)


def record_forward(model: TransformerModel, fed: TraceInput, *, tap: Tap = OFF) -> ForwardRecord:
    """Run the model once on this input. `tap` may change things."""
    seen: dict[str, Tensor] = {}
    calls: dict[str, RecordedCall] = {}

    def keep(address: str, x: Tensor) -> Tensor:
        if _is_stream(address):
            seen[address] = x.detach()[0]
        return x

    def keep_call(address: str, call: RecordedCall) -> None:
        calls[address] = replace(call, q_BHQE=call.q_BHQE.detach(), k_BHKE=call.k_BHKE.detach())

    watch = chain_taps(tap, Tap("*.out", keep, on_call=keep_call), Tap("*.embed", keep))
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            inputs, options = fed.arguments(next(model.parameters()).device)
            answer = model(*inputs, **options, tap=watch)
    finally:
        model.train(was_training)
    return ForwardRecord(answer[0], calls, seen)


def _is_stream(address: str) -> bool:
    """The stream itself, not what a sub-layer adds to it."""
    parts = address.split(".")
    return len(parts) == 2 or (len(parts) == 4 and parts[1] == "blocks")
