"""Prefix and prompt tuning: learned keys and values, or vectors, before every text (see nn/virtual_tokens).

They start as what the model computes for random tokens, so that the tuned model begins near where it was: a
prefix as their keys and values, a prompt as their embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ..errors import ClearheadError, InputError
from ..nn import (
    Cache,
    PrefixModule,
    PrefixTokens,
    PromptModule,
    PromptTokens,
    Stack,
    States,
    TokenEmbedding,
    Tower,
    TransformerModel,
    VirtualLength,
    VirtualTokens,
    generator,
)
from .linear import adapter_dtype
from .names import ModelNames
from .tuning import Attachment, Tuning

VirtualStart = Literal["tokens", "random"]
RANDOM_STD = 0.02


@dataclass(frozen=True, kw_only=True)
class Prompt(Tuning):
    """Vectors before every text, in the place of embeddings (Lester 2021); before that of an encoder."""

    unit: ClassVar[str] = "embedding"
    rate: ClassVar[float] = 100.0

    length: VirtualLength = 20  # number of virtual tokens
    start: VirtualStart = "tokens"  # embeddings of random tokens, or small random numbers

    def attach(self, model: TransformerModel, names: ModelNames, seed: int) -> Attachment:
        name, stack = next(iter(model.stacks.items()))
        _require_none(model, [name])
        spec = _put_before(model, {name: PromptTokens(length=self.length)})
        module = stack.virtual
        assert isinstance(module, PromptModule)
        drawn = _embeddings(stack, self.length, seed) if self.start == "tokens" else None
        _fill({"table": module.table}, {} if drawn is None else {"table": drawn}, seed)
        return Attachment(layers=(f"{name}.embed",), spec=spec)


@dataclass(frozen=True, kw_only=True)
class Prefix(Tuning):
    """Keys and values before those of the text, in every layer (Li 2021).

    In a model with encoder and decoder each of `parts` has its own: the self-attention of the encoder, that
    of the decoder, and the cross-attention, where they come before the encoder output.
    """

    unit: ClassVar[str] = "attention layer"
    rate: ClassVar[float] = 200.0

    length: VirtualLength = 20  # number of virtual tokens
    # of a model with encoder and decoder: which attention has its own
    parts: tuple[Literal["encoder", "decoder", "cross"], ...] = ("encoder", "decoder", "cross")
    start: VirtualStart = "tokens"  # keys and values of random tokens, or small random numbers

    def check(self) -> None:
        if not self.parts:
            raise InputError("Prefix.parts is empty; expected some of encoder, decoder and cross")

    def attach(self, model: TransformerModel, names: ModelNames, seed: int) -> Attachment:
        stacks, cross = model.stacks, 0
        if model.spec.source_tower is not None:
            stacks = {name: stack for name, stack in stacks.items() if name in self.parts}
            cross = self.length if "cross" in self.parts else 0
            if cross and "decoder" not in stacks:
                raise InputError("Prefix.parts has cross without decoder; name both, or leave cross out")
        _require_none(model, stacks)
        kinds: dict[str, VirtualTokens] = {
            name: PrefixTokens(length=self.length, cross=cross if _attends_to_encoder(stack) else 0)
            for name, stack in stacks.items()
        }
        drawn = _keys_and_values(model, list(kinds), self.length, seed) if self.start == "tokens" else {}
        spec = _put_before(model, kinds)
        for name, stack in stacks.items():
            module = stack.virtual
            assert isinstance(module, PrefixModule)
            own = {f"{name}.{key}": p for key, p in module.named_parameters()}
            _fill(own, drawn, seed)
        return Attachment(layers=tuple(_attention_layers(stacks, cross)), spec=spec)


def _attends_to_encoder(stack: Stack) -> bool:
    return any(block.cross is not None for block in stack.spec.pattern)


def _attention_layers(stacks: dict[str, Stack], cross: int) -> Iterator[str]:
    for name, stack in stacks.items():
        for i in range(len(stack.blocks)):
            yield f"{name}.blocks.{i}.attn"
            if cross and _attends_to_encoder(stack):
                yield f"{name}.blocks.{i}.cross"


def _require_none(model: TransformerModel, names: Iterable[str]) -> None:
    for name in names:
        if (own := model.stacks[name].spec.virtual) is not None:
            raise InputError(f"the {name} has {type(own).__name__} already; a tower has virtual tokens once")


def _put_before(model: TransformerModel, kinds: dict[str, VirtualTokens]) -> Any:
    """Give the towers virtual tokens, in place; returns the spec of the model with them."""
    towers: dict[str, Tower] = {}
    for name, kind in kinds.items():
        stack = model.stacks[name]
        towers[name] = stack.spec = replace(stack.spec, virtual=kind)
        like = next(stack.parameters())
        module = kind.build(stack).to(like.device, adapter_dtype(like))
        stack.virtual = module.train(stack.training)
    model.spec = replace(model.spec, **towers)
    return model.spec


@torch.no_grad()
def _fill(parameters: dict[str, nn.Parameter], drawn: dict[str, Tensor], seed: int) -> None:
    for name, parameter in parameters.items():
        if name in drawn:
            parameter.copy_(drawn[name])
        else:
            parameter.normal_(0.0, RANDOM_STD, generator=generator(seed, "tune", name))


@torch.no_grad()
def _embeddings(stack: Stack, length: int, seed: int) -> Tensor | None:
    """The embeddings of random tokens, before positions and types are added."""
    if not isinstance(stack.embed, TokenEmbedding):
        return None
    ids_1P = stack.spec.embed.example(1, length, generator(seed, "tune", "tokens"))
    table = stack.embed.table
    vectors: Tensor = table(ids_1P.to(table.weight.device))[0]
    return vectors * stack.embed.scale


@torch.no_grad()
def _keys_and_values(model: TransformerModel, names: list[str], length: int, seed: int) -> dict[str, Tensor]:
    """The keys and values of random tokens in every layer, as a cache holds them."""
    found: dict[str, Tensor] = {}
    output: States | None = None
    was_training = model.training
    model.eval()
    try:
        for name, stack in model.stacks.items():
            cache = Cache(len(stack.blocks))
            ids = stack.spec.embed.example(1, length, generator(seed, "tune", name))
            output = stack(ids.to(next(stack.parameters()).device), encoder_output=output, cache=cache)
            for i, layer in enumerate(cache.layers):
                if layer.kv is None:
                    return {}
                found[f"{name}.keys.{i}"], found[f"{name}.values.{i}"] = (x[0] for x in layer.kv)
                if layer.cross_kv is not None:
                    k, v = layer.cross_kv
                    found[f"{name}.cross_keys.{i}"], found[f"{name}.cross_values.{i}"] = k[0], v[0]
    except ClearheadError:  # a tower that cannot be run with a cache: its prefix starts at random
        return {}
    finally:
        model.train(was_training)
    return found
