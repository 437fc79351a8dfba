"""Records of a forward pass: the inputs of every attention kernel, the residual stream after every layer, and
the experts of every token.

The model's output is bit-identical to that of an unrecorded pass: kernels report their inputs and compute as
usual. Attention weights are computed later, only for the layers and heads that are requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch
from torch import Tensor

from ..errors import InputError, UnsupportedError
from ..nn import OFF, PrefixTokens, PromptTokens, Tap, TransformerModel
from ..nn.kernels import ALL, RecordedCall
from .clone import chain_taps
from .tokens import Token

AttentionKind = Literal["self", "decoder", "cross"]


@dataclass(frozen=True)
class TraceInput:
    """The input of a traced forward pass: ids and tokens, and those of the decoder, if it has its own."""

    ids: Sequence[int] | Tensor  # or other inputs of the first tower: audio frames, pixels
    tokens: list[Token]
    types: Sequence[int] | None = None
    target_ids: Sequence[int] | Tensor | None = None
    target_tokens: list[Token] | None = None
    prompt: int = 1  # number of tokens (of the target, if there is one) that were given, not generated

    def arguments(self, device: torch.device, rows: int = 1) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Positional and keyword arguments of the model, as a batch of `rows` identical rows."""

        def batch(ids: Sequence[int] | Tensor) -> Tensor:
            one = ids if isinstance(ids, Tensor) else torch.tensor(list(ids))
            return one.to(device).expand(rows, *one.shape)

        inputs = [batch(ids) for ids in (self.ids, self.target_ids) if ids is not None]
        return inputs, {} if self.types is None else {"types": batch(self.types)}


@dataclass(frozen=True)
class ModelInfo:
    """The facts about a model that are needed to read its trace."""

    title: str
    kinds: dict[AttentionKind, str]  # kind of attention -> its addresses: "decoder.blocks.{}.cross"
    generates: bool  # decodes token by token
    has_head: bool  # the output is predictions (tokens, labels), not hidden states


@dataclass
class ForwardRecord:
    """The recorded tensors of one pass. Addresses are those of taps: `decoder.blocks.3.cross`."""

    answer: Tensor  # the model's output, without the batch dimension
    calls: dict[str, RecordedCall] = field(default_factory=dict)
    streams: dict[str, Tensor] = field(default_factory=dict)  # `tower.embed`, `tower.blocks.0.out`, ...
    routing: dict[str, Tensor] = field(default_factory=dict)  # `tower.blocks.0.ff`: (T, experts) weights
    # (2, T) of attention over pooled tokens: the query and the key that stand for each token; -1: none does
    groups: dict[str, Tensor] = field(default_factory=dict)
    # How many queries and keys of an attention are virtual tokens, which come first.
    virtual: dict[str, tuple[int, int]] = field(default_factory=dict)

    def depth(self, side: str) -> int:
        return sum(1 for name in self.streams if name.startswith(f"{side}.blocks."))

    def call(self, address: str) -> RecordedCall:
        if address not in self.calls:
            layer = address.split(".")[2]
            raise InputError(f"layer {layer} has no attention weights: its token mixer is not attention")
        return self.calls[address]

    def pattern(self, address: str, heads: slice = ALL) -> Tensor:
        """(H, Q, K): the weights of one attention.

        Only those of tokens; `virtual_pattern` has what goes to virtual tokens.
        Of pooled tokens, every token has the row of its group, and the tokens of a group share its column in
        equal parts: rows still sum to one. A token that pooling dropped has zeros.
        """
        call = self.call(address)
        try:
            with torch.no_grad():
                weights_HQK = call.pattern(heads)[0].float()
                queries, keys = self.virtual.get(address, (0, 0))
                if address not in self.groups:
                    return weights_HQK[:, queries:, keys:]
                query_T, key_T = self.groups[address]
                shares_HQT = _by_token(weights_HQK.mT / key_T[key_T >= 0].bincount()[:, None], key_T).mT
                return _by_token(shares_HQT, query_T)
        except UnsupportedError:
            name = call.kernel.name
            raise InputError(f"{name} attention does not define attention weights") from None

    def virtual_pattern(self, address: str) -> Tensor:
        """(H, Q, P): the weights of tokens on virtual tokens."""
        queries, keys = self.virtual.get(address, (0, 0))
        with torch.no_grad():
            return self.call(address).pattern()[0, :, queries:, :keys].float()


def _virtual_tokens(model: TransformerModel) -> dict[str, tuple[int, int]]:
    """How many queries and keys of every attention are virtual tokens."""
    found: dict[str, tuple[int, int]] = {}
    source = model.spec.source_tower
    for name, stack in model.stacks.items():
        virtual = stack.spec.virtual
        queries = virtual.length if isinstance(virtual, PromptTokens) else 0
        keys = 0 if virtual is None else virtual.length
        cross = virtual.cross if isinstance(virtual, PrefixTokens) else 0
        if source is not None and isinstance(source.virtual, PromptTokens):
            cross += source.virtual.length  # the decoder attends to their states
        for i in range(stack.spec.depth):
            found[f"{name}.blocks.{i}.attn"] = queries, keys
            found[f"{name}.blocks.{i}.cross"] = queries, cross
    return {address: counts for address, counts in found.items() if any(counts)}


def model_info(model: TransformerModel, title: str) -> ModelInfo:
    has_head = model.head is not None
    return ModelInfo(title, attention_addresses(model), generates=model.spec.generates, has_head=has_head)


def attention_addresses(model: TransformerModel) -> dict[AttentionKind, str]:
    """The kinds of attention with the addresses of their layers: "self" for the first tower, the tower's name
    for the self-attention of further ones, and "cross"."""
    kinds: dict[str, str] = {}
    for name, tower in model.stacks.items():
        kinds[name if kinds else "self"] = f"{name}.blocks.{{}}.attn"
        if any(block.cross is not None for block in tower.spec.pattern):
            kinds["cross"] = f"{name}.blocks.{{}}.cross"
    return cast("dict[AttentionKind, str]", kinds)


def _by_token(x_GD: Tensor, group_T: Tensor) -> Tensor:
    """(..., G, D) -> (..., T, D): for every token what its group has; zeros without a group."""
    return x_GD[..., group_T.clamp(min=0), :] * (group_T >= 0)[:, None]


def _pooled_groups(model: TransformerModel, trace_input: TraceInput) -> dict[str, Tensor]:
    """The groups of every layer that reads fewer tokens than the text has, by the layer's address."""
    found: dict[str, Tensor] = {}
    texts = (trace_input.ids, trace_input.target_ids)
    for (name, stack), ids in zip(model.stacks.items(), texts, strict=False):
        if stack.spec.pooling is None or ids is None:
            continue
        for i, groups in enumerate(stack.spec.pooling.groups_of_tokens(len(ids), stack.spec.depth)):
            if any(not torch.equal(group_T, torch.arange(len(ids))) for group_T in groups):
                found[f"{name}.blocks.{i}"] = torch.stack(groups)
    return found


def record_forward(model: TransformerModel, trace_input: TraceInput, *, tap: Tap = OFF) -> ForwardRecord:
    """Run the model once on this input. `tap` runs first and may replace activations."""
    streams: dict[str, Tensor] = {}
    calls: dict[str, RecordedCall] = {}
    routing: dict[str, Tensor] = {}
    groups, virtual = _pooled_groups(model, trace_input), _virtual_tokens(model)
    # What a tower returns has the tokens of its last layer.
    last_layer = {f"{name}.out": f"{name}.blocks.{s.spec.depth - 1}" for name, s in model.stacks.items()}

    def record_stream(address: str, x: Tensor) -> Tensor:
        # `tower.embed` and `tower.blocks.0.out` are the stream; deeper ones are outputs of sub-layers.
        parts = address.split(".")
        if len(parts) == 2 or (len(parts) == 4 and parts[1] == "blocks"):
            layer = address.removesuffix(".out") if len(parts) == 4 else last_layer.get(address, address)
            x_TD = x.detach()[0]
            x_TD = x_TD[virtual.get(f"{parts[0]}.blocks.0.attn", (0, 0))[0] :]
            streams[address] = _by_token(x_TD, groups[layer][0].to(x.device)) if layer in groups else x_TD
        return x

    def record_call(address: str, call: RecordedCall) -> None:
        calls[address] = replace(call, q_BHQE=call.q_BHQE.detach(), k_BHKE=call.k_BHKE.detach())

    def record_routing(address: str, x: Tensor) -> Tensor:
        routing[address.removesuffix(".routing")] = x.detach()[0].float()
        return x

    taps = chain_taps(
        tap,
        Tap("*.out", record_stream, on_call=record_call),
        Tap("*.embed", record_stream),
        Tap("*.routing", record_routing),
    )
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            inputs, options = trace_input.arguments(next(model.parameters()).device)
            answer = model(*inputs, **options, tap=taps)
    finally:
        model.train(was_training)
    device = next(model.parameters()).device
    of_attention = {f"{layer}.attn": group_2T.to(device) for layer, group_2T in groups.items()}
    return ForwardRecord(answer[0], calls, streams, routing, of_attention, virtual)
