"""Ablation: words such as `head:3.7` in; a shallow clone of the model without that part out.

    head:3.7      one head silent               attn:3  cross:3  mlp:3    a sub-layer silent
    residual:3    only what the sub-layers add, not what came in
    norm:3        the norms of a layer left out
    scale         scores not divided by sqrt(head width)
    mask          everyone sees everyone        positions    no order of tokens
    tower.blocks.3.ff.out                       any activation by its address: zero

Without a number, all layers, of an encoder-decoder those of both stacks. A number needs its stack there:
`encoder.head:3.7`, `decoder.mlp:0`, `cross.head:1.2`. Beyond switching off, `set` puts values in:
`{address: value}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from ..errors import InputError, nearest
from ..nn import (
    Attention,
    BlockModule,
    Everyone,
    MultiHead,
    PositionScheme,
    SelfAttention,
    Stack,
    Tap,
    TransformerModel,
    sites,
)
from .clone import chain_taps, shallow_clone, with_tap

Value = float | str | Tensor | Callable[[Tensor], Tensor]
"""What an activation becomes: a number, "mean" (over the tokens), "x0.5" (a factor), a tensor, a function."""

SUBLAYERS = {"attn": "attn", "cross": "cross", "mlp": "ff"}
WHOLE_MODEL = ("scale", "mask", "positions")  # need no side: switched off in all stacks together
WORDS = ("head", *SUBLAYERS, "residual", "norm", *WHOLE_MODEL)
GRAMMAR = re.compile(r"(?:(?P<side>\w+)\.)?(?P<what>[a-z]+)(?::(?P<layer>\d+)(?:\.(?P<head>\d+))?)?")


@dataclass(frozen=True)
class AblatedPart:
    """One word, parse_part: what is switched off, in which towers and layers."""

    what: str
    sides: tuple[str, ...]
    layers: tuple[int, ...] | None  # None: all
    head: int | None = None
    part: str = "attn"  # which attention a head is of


def ablate(
    model: TransformerModel, without: Sequence[str] = (), set: Mapping[str, Value] | None = None
) -> TransformerModel:
    """A shallow clone of the model with parts switched off or replaced; the model itself does not change."""
    twin, taps = shallow_clone(model), []
    for word in without:
        if word in sites_of(model) or "*" in word:
            taps.append(_setting(model, word, 0.0))
            continue
        off = parse_part(model, word)
        if off.what in ("scale", "mask", "positions", "norm"):
            _swap(twin, off)
        else:
            taps += _silences(model, off)
    taps += [_setting(model, address, value) for address, value in (set or {}).items()]
    return with_tap(twin, chain_taps(*taps)) if taps else twin


def sites_of(model: nn.Module) -> frozenset[str]:
    return frozenset(sites(model))


def parse_part(model: TransformerModel, word: str) -> AblatedPart:
    """A word checked against a model: every layer and head it names is there."""
    found = GRAMMAR.fullmatch(word)
    if found is None or found["what"] not in WORDS:
        if "blocks" in word:
            raise no_site(model, word)
        hint = nearest(word.split(":")[0].split(".")[-1], WORDS)
        raise InputError(f"{word!r} cannot be switched off; {hint}")
    what, side = found["what"], found["side"]
    part = "cross" if "cross" in (side, what) else "attn"
    sides = _sides(model, what, "decoder" if part == "cross" else side, word)
    layer, head = (None if found[name] is None else int(found[name]) for name in ("layer", "head"))
    if (head is None) == (what == "head"):
        raise InputError(f"{word!r}: a head is head:LAYER.HEAD, such as head:0.1; other words take no head")
    for name in sides:
        _check(model.stacks[name], part, layer, head, word)
    return AblatedPart(what, sides, None if layer is None else (layer,), head, part)


def _sides(model: TransformerModel, what: str, side: str | None, word: str) -> tuple[str, ...]:
    there = tuple(model.stacks)
    if side is not None:
        if side not in there:
            raise InputError(f"{word!r}: there is no {side} here; {nearest(side, there)}")
        return (side,)
    if len(there) > 1 and what not in WHOLE_MODEL and ":" in word:  # a layer's number is one of a stack
        names = (*there, "cross") if what == "head" else there
        both = ", ".join(f"{name}.{word}" for name in names)
        raise InputError(f"{word!r}: this model has {' and '.join(there)}; use one of {both}")
    return there


def _check(tower: Stack, part: str, layer: int | None, head: int | None, word: str) -> None:
    depth = len(tower.blocks)
    if layer is not None and layer >= depth:
        raise InputError(f"{word!r}: there are {depth} layers, from 0 to {depth - 1}")
    pattern = tower.spec.pattern
    block = pattern[(layer or 0) % len(pattern)]
    attention = block.attention if part == "attn" else block.cross
    if attention is None:
        raise InputError(f"{word!r}: this model has no cross-attention")
    count = attention.heads if isinstance(attention, Attention) else 0
    if head is not None and head >= count:
        reason = f"there are {count} heads, from 0 to {count - 1}" if count else "this layer has no heads"
        raise InputError(f"{word!r}: {reason}")


def _silences(model: TransformerModel, off: AblatedPart) -> list[Tap]:
    """Taps that put zeros where a part would have spoken."""
    taps = []
    for side in off.sides:
        for i, block in enumerate(model.stacks[side].blocks):
            assert isinstance(block, BlockModule)
            if off.layers is not None and i not in off.layers:
                continue
            here = f"{side}.blocks.{i}"
            if off.what == "head":
                assert off.head is not None
                taps.append(Tap(f"{here}.{off.part}.mix", _without_head(off.head)))
            elif off.what == "residual":
                # In a parallel block all sub-layers add to one stream: it is left out once, at the first.
                steps = block.steps[:1] if block.order == "parallel" else block.steps
                taps += [Tap(f"{here}.{step}.stream", _zero) for step in steps]
            else:
                taps.append(Tap(f"{here}.{SUBLAYERS[off.what]}.out", _zero))
    return taps


def _swap(twin: TransformerModel, off: AblatedPart) -> None:
    """Parts that are no activation: other modules, or other numbers, in their place."""
    for side in off.sides:
        tower = twin.stacks[side]
        if off.what == "positions":
            tower.positions = PositionScheme()  # silent at every door
        if off.what == "mask":
            tower.spec = replace(tower.spec, causal=False)
        for i, block in enumerate(tower.blocks):
            assert isinstance(block, BlockModule)
            if off.layers is None or i in off.layers:
                _swap_in_block(block, off)


def _swap_in_block(block: BlockModule, off: AblatedPart) -> None:
    for step in block.steps:
        attention = getattr(block, step)
        if off.what == "norm":
            block._modules[f"{step}_norm"] = nn.Identity()
            if block.order == "sandwich":
                block._modules[f"{step}_after"] = nn.Identity()
        if off.what == "scale" and isinstance(attention, MultiHead):
            attention.scale = 1.0
        if off.what == "mask" and isinstance(attention, SelfAttention):
            attention.rule = Everyone()


def _zero(_: str, x: Tensor) -> Tensor:
    return torch.zeros_like(x)


def _without_head(head: int) -> Callable[[str, Tensor], Tensor]:
    def silence(_: str, x_BHQE: Tensor) -> Tensor:
        x_BHQE = x_BHQE.clone()
        x_BHQE[:, head] = 0
        return x_BHQE

    return silence


def _setting(model: TransformerModel, address: str, value: Value) -> Tap:
    there = sites_of(model)
    if address not in there and not any(fnmatchcase(name, address) for name in there):
        raise no_site(model, address)
    make = _maker(value)

    def put(name: str, x: Tensor) -> Tensor:
        new = make(x)
        try:
            return new.to(x).expand_as(x)
        except RuntimeError:
            raise InputError(
                f"{name} is {tuple(x.shape)}; a tensor of {tuple(new.shape)} cannot take its place"
            ) from None

    return Tap(address, put)


def no_site(model: nn.Module, address: str) -> InputError:
    """There are hundreds of addresses: the nearest one, or an example."""
    hint = nearest(address, sites(model))
    if hint.startswith("known"):
        hint = f"an address is such as {list(sites(model))[-1]}; clearhead.nn.sites(model) lists them"
    return InputError(f"no activation is called {address!r}; {hint}")


def _maker(value: Value) -> Callable[[Tensor], Tensor]:
    if isinstance(value, Tensor):
        return lambda x: value
    if callable(value):
        return value
    if isinstance(value, int | float):
        return lambda x: torch.full_like(x, value)
    if value == "mean":
        return lambda x: x.mean(dim=-2, keepdim=True)
    try:
        number = float(value.removeprefix("x"))
    except ValueError:
        raise InputError(
            f"an activation becomes a number, 'mean' or a factor 'x0.5'; given {value!r}"
        ) from None
    return (lambda x: x * number) if value.startswith("x") else (lambda x: torch.full_like(x, number))
