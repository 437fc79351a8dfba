"""Ablation: part names such as `head:3.7` in; a shallow clone of the model without those parts out.

    head:3.7      the output of one head is zero
    attn:3  cross:3  mlp:3    the output of a sub-layer is zero
    residual:3    no skip connection: only the outputs of the sub-layers
    norm:3        no norms in this layer
    scale         scores are not divided by sqrt(head width)
    mask          every token attends to every token
    positions     no position scheme
    tower.blocks.3.ff.out     any activation by its address, set to zero

Without a layer number a part is ablated in all layers, of both stacks in an encoder-decoder. There, a layer
number needs the name of its stack: `encoder.head:3.7`, `decoder.mlp:0`, `cross.head:1.2`. `set` replaces
activations by other values: `{address: value}`.
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
"""A replacement for an activation: number, "mean" (over tokens), "x0.5" (a factor), tensor or function."""

SUBLAYERS = {"attn": "attn", "cross": "cross", "mlp": "ff"}
WHOLE_MODEL = ("scale", "mask", "positions")  # ablated in all stacks, so they need no side
WORDS = ("head", *SUBLAYERS, "residual", "norm", *WHOLE_MODEL)
GRAMMAR = re.compile(r"(?:(?P<side>\w+)\.)?(?P<what>[a-z]+)(?::(?P<layer>\d+)(?:\.(?P<head>\d+))?)?")


@dataclass(frozen=True)
class AblatedPart:
    """A parsed part name: what to ablate, in which stacks and layers."""

    what: str
    sides: tuple[str, ...]
    layers: tuple[int, ...] | None  # None: all
    head: int | None = None
    part: str = "attn"  # the attention that a head belongs to: attn or cross


def ablate(
    model: TransformerModel, without: Sequence[str] = (), set: Mapping[str, Value] | None = None
) -> TransformerModel:
    """A shallow clone of the model with parts ablated or activations replaced; the model does not change."""
    clone, taps = shallow_clone(model), []
    for word in without:
        if word in sites(model) or "*" in word:
            taps.append(_replace_tap(model, word, 0.0))
            continue
        part = parse_part(model, word)
        # These four are not activations, so the clone is changed; all others are zeroed by taps.
        if part.what in ("scale", "mask", "positions", "norm"):
            _change_modules(clone, part)
        else:
            taps += _zero_taps(model, part)
    taps += [_replace_tap(model, address, value) for address, value in (set or {}).items()]
    return with_tap(clone, chain_taps(*taps)) if taps else clone


def parse_part(model: TransformerModel, word: str) -> AblatedPart:
    """Parse a part name and check that the model has the layer and the head it names."""
    match = GRAMMAR.fullmatch(word)
    if match is None or match["what"] not in WORDS:
        if "blocks" in word:
            raise no_site(model, word)
        hint = nearest(word.split(":")[0].split(".")[-1], WORDS)
        raise InputError(f"{word!r} cannot be ablated; {hint}")
    what, side = match["what"], match["side"]
    part = "cross" if "cross" in (side, what) else "attn"
    sides = _sides(model, what, "decoder" if part == "cross" else side, word)
    layer, head = (None if match[name] is None else int(match[name]) for name in ("layer", "head"))
    if (head is None) == (what == "head"):
        raise InputError(
            f"{word!r}: a head is written head:LAYER.HEAD, such as head:0.1; other parts take no head"
        )
    for name in sides:
        _check_exists(model.stacks[name], part, layer, head, word)
    return AblatedPart(what, sides, None if layer is None else (layer,), head, part)


def _sides(model: TransformerModel, what: str, side: str | None, word: str) -> tuple[str, ...]:
    stacks = tuple(model.stacks)
    if side is not None:
        if side not in stacks:
            raise InputError(f"{word!r}: this model has no {side}; {nearest(side, stacks)}")
        return (side,)
    # Layers are counted per stack, so with two stacks a layer number alone is ambiguous.
    if len(stacks) > 1 and what not in WHOLE_MODEL and ":" in word:
        names = (*stacks, "cross") if what == "head" else stacks
        choices = ", ".join(f"{name}.{word}" for name in names)
        raise InputError(f"{word!r}: this model has {' and '.join(stacks)}; use one of {choices}")
    return stacks


def _check_exists(tower: Stack, part: str, layer: int | None, head: int | None, word: str) -> None:
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


def _zero_taps(model: TransformerModel, ablated: AblatedPart) -> list[Tap]:
    """Taps that set the output of a part to zero."""
    taps = []
    for side in ablated.sides:
        for i, block in enumerate(model.stacks[side].blocks):
            assert isinstance(block, BlockModule)
            if ablated.layers is not None and i not in ablated.layers:
                continue
            here = f"{side}.blocks.{i}"
            if ablated.what == "head":
                assert ablated.head is not None
                taps.append(Tap(f"{here}.{ablated.part}.mix", _zero_head(ablated.head)))
            elif ablated.what == "residual":
                # In a parallel block all sub-layers add to one stream, so it is zeroed once, at the first.
                steps = block.steps[:1] if block.is_parallel else block.steps
                taps += [Tap(f"{here}.{step}.stream", _zero) for step in steps]
            else:
                taps.append(Tap(f"{here}.{SUBLAYERS[ablated.what]}.out", _zero))
    return taps


def _change_modules(clone: TransformerModel, ablated: AblatedPart) -> None:
    """Ablate parts that are not activations: replace modules or settings of the clone."""
    for side in ablated.sides:
        tower = clone.stacks[side]
        if ablated.what == "positions":
            tower.positions = PositionScheme()  # the base class adds, rotates and biases nothing
        if ablated.what == "mask":
            tower.spec = replace(tower.spec, causal=False)
        for i, block in enumerate(tower.blocks):
            assert isinstance(block, BlockModule)
            if ablated.layers is None or i in ablated.layers:
                _change_block(block, ablated.what)


def _change_block(block: BlockModule, what: str) -> None:
    if what == "positions" and block.positions is not None:
        block.positions = PositionScheme()
    for step in block.steps:
        sublayer = getattr(block, step)
        if what == "norm":
            for norm in (f"{step}_norm", f"{step}_after"):
                if getattr(block, norm) is not None:
                    block._modules[norm] = nn.Identity()
        if what == "scale" and isinstance(sublayer, MultiHead):
            sublayer.scale = 1.0
        if what == "mask" and isinstance(sublayer, SelfAttention):
            sublayer.rule = Everyone()


def _zero(_: str, x: Tensor) -> Tensor:
    return torch.zeros_like(x)


def _zero_head(head: int) -> Callable[[str, Tensor], Tensor]:
    def zero(_: str, x_BHQE: Tensor) -> Tensor:
        x_BHQE = x_BHQE.clone()
        x_BHQE[:, head] = 0
        return x_BHQE

    return zero


def _replace_tap(model: TransformerModel, address: str, value: Value) -> Tap:
    known = frozenset(sites(model))
    if address not in known and not any(fnmatchcase(name, address) for name in known):
        raise no_site(model, address)
    new_value = _value_function(value)

    def replace_activation(name: str, x: Tensor) -> Tensor:
        new = new_value(x)
        try:
            return new.to(x).expand_as(x)
        except RuntimeError:
            raise InputError(
                f"{name} has shape {tuple(x.shape)}; a tensor of shape {tuple(new.shape)} cannot replace it"
            ) from None

    return Tap(address, replace_activation)


def no_site(model: nn.Module, address: str) -> InputError:
    """The error for an unknown address: names the nearest one or an example, because there are hundreds."""
    hint = nearest(address, sites(model))
    if hint.startswith("known"):
        hint = f"an example is {list(sites(model))[-1]}; clearhead.nn.sites(model) lists all addresses"
    return InputError(f"there is no activation {address!r}; {hint}")


def _value_function(value: Value) -> Callable[[Tensor], Tensor]:
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
            f"an activation can be set to a number, 'mean' or a factor such as 'x0.5'; given {value!r}"
        ) from None
    return (lambda x: x * number) if value.startswith("x") else (lambda x: torch.full_like(x, number))
