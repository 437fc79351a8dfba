"""Descriptions: a spec in; its sizes and a one-line summary out."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

from ..nn import (
    Adaptive,
    Alibi,
    Attention,
    Block,
    Combined,
    Disentangled,
    Experts,
    FeedForward,
    HiddenShape,
    Learned,
    Model,
    NoPositions,
    Pooling,
    Positions,
    Projection,
    RelativeBuckets,
    Rope,
    Sinusoidal,
    Softmax,
    Tokens,
    Tower,
)


def shape(tower: Tower) -> dict[str, Any]:
    """The sizes of a tower."""
    block = tower.pattern[0]
    heads, head_dim = block.attention.sizes(tower.width)
    return {
        "layers": tower.depth,
        "width": tower.width,
        "heads": heads,
        "kv_heads": getattr(block.attention, "kv_heads", None) or heads,
        "head_dim": head_dim,
        "hidden": getattr(block.feedforward, "hidden", None),
        "vocab": tower.embed.vocab if isinstance(tower.embed, Tokens | Adaptive) else None,
        "window": windows(tower),
    }


def windows(tower: Tower) -> list[int | None]:
    """The attention window of each layer of the repeating pattern in tokens; None is unlimited."""
    return [window_of(block) for block in tower.pattern]


def window_of(block: Block) -> int | None:
    size = getattr(block.attention, "window", None)
    return None if size is None else int(size[0]) + 1


def layers(tower: Tower) -> list[Block]:
    """The block of every layer."""
    return [tower.pattern[i % len(tower.pattern)] for i in tower.weights_of_layers]


def describe_feedforward(feedforward: FeedForward) -> str:
    """`Gated 14336 silu`, or `8 experts of Gated 14336 silu, 2 per token`."""
    if not isinstance(feedforward, Experts):
        hidden, act = getattr(feedforward, "hidden", ""), getattr(feedforward, "act", "")
        return f"{type(feedforward).__name__} {hidden} {act}".strip()
    shared = "" if feedforward.shared is None else f", {describe_feedforward(feedforward.shared)} shared"
    capacity = "" if feedforward.router.capacity is None else f", capacity {feedforward.router.capacity}"
    expert = describe_feedforward(feedforward.expert)
    return f"{feedforward.count} experts of {expert}, {feedforward.router.chosen} per token{shared}{capacity}"


def idle_parameters(spec: Model) -> int:
    """The parameters of the experts that a token does not pass through; 0 without experts."""
    idle = 0
    for tower in spec.towers.values():
        one = HiddenShape(batch=1, length=1, width=tower.width)
        for experts in (block.feedforward for block in layers(tower)):
            if isinstance(experts, Experts):
                idle += (experts.count - experts.router.chosen) * experts.expert.cost(one).parameters
    return idle


def _by_layer(words: list[str]) -> str:
    """What all layers have, or how many layers have which."""
    counts = Counter(words)
    if len(counts) == 1:
        return words[0]
    return "; ".join(f"{word} in {count} of {len(words)} layers" for word, count in counts.items())


def describe_positions(positions: Positions) -> str:
    """A position scheme in a few words."""
    if isinstance(positions, Learned):
        return f"learned, {positions.length}"
    if isinstance(positions, Rope):
        rotated = "" if positions.fraction == 1 else f" on {positions.fraction:.0%} of each head"
        scaling = f", {type(positions.stretch).__name__}" if positions.stretch else ""
        return f"rotary, theta {positions.theta:g}{rotated}{scaling}"
    if isinstance(positions, RelativeBuckets):
        return f"{positions.buckets} distance buckets"
    if isinstance(positions, Combined):
        return " and ".join(describe_positions(scheme) for scheme in positions.schemes)
    if isinstance(positions, Disentangled):
        learned = "" if positions.absolute is None else f", learned, {positions.absolute.length}"
        return f"disentangled distances ({', '.join(positions.terms)}){learned}"
    names = {NoPositions: "none", Sinusoidal: "sinusoidal", Alibi: "linear distance penalty (ALiBi)"}
    return names.get(type(positions), type(positions).__name__)


def describe_pooling(pooling: Pooling) -> str:
    where = ", ".join(str(layer) for layer in pooling.before)
    restored = "" if pooling.restore is None else f", restored before layer {pooling.restore}"
    return f"{pooling.reduce} pooling before layers {where}{restored}"


def sentence(tower: Tower) -> str:
    """A tower in one line: `6 layers x 12 heads (width 384, head 32), post-norm, learned, 512, gelu`."""
    sizes, block = shape(tower), tower.pattern[0]
    heads = f"{sizes['heads']} heads"
    if sizes["kv_heads"] != sizes["heads"]:
        heads += f" over {sizes['kv_heads']} keys"
    parts = [
        f"{sizes['layers']} layers x {heads} (width {sizes['width']}, head {sizes['head_dim']})",
        f"{block.order}-norm ({type(block.norm).__name__})",
        f"positions {describe_positions(tower.positions)}",
        _by_layer([describe_feedforward(each.feedforward) for each in layers(tower)]),
    ]
    # Softmax attention is the usual case and is not mentioned.
    if not isinstance(block.attention, Attention):
        parts.insert(1, str(block.attention))
    elif not isinstance(block.attention.kernel, Softmax):
        parts.insert(1, str(block.attention.kernel))
    elif isinstance(block.attention.project, Projection):
        parts.insert(1, str(block.attention.project))
    windows_of_layers = [window_of(each) for each in layers(tower)]
    for window, count in Counter(size for size in windows_of_layers if size).items():
        parts.append(f"window {window} in {count} of {tower.depth} layers")
    if any(isinstance(node, Softmax) and node.sink for node in block.nodes()):
        parts.append("attention sinks")
    own = Counter(describe_positions(each.positions) for each in layers(tower) if each.positions is not None)
    parts += [f"positions {words} in {count} of {tower.depth} layers" for words, count in own.items()]
    if isinstance(tower.distinct, int):
        parts.append(f"{tower.distinct} set of weights for all layers")
    elif tower.distinct:
        parts.append(f"{tower.own_layers} sets of weights for {tower.depth} layers")
    if tower.pooling is not None:
        parts.append(describe_pooling(tower.pooling))
    return " · ".join(parts)


def flat(spec: Any, path: str = "") -> dict[str, Any]:
    """A spec as `{"tower.block.attention.heads": 12, ...}`, with the class names of its parts."""
    rows: dict[str, Any] = {path or "model": type(spec).__name__}
    for field in fields(spec):
        value, here = getattr(spec, field.name), f"{path}.{field.name}".lstrip(".")
        if hasattr(value, "to_dict"):
            rows |= flat(value, here)
        elif isinstance(value, tuple) and value and hasattr(value[0], "to_dict"):
            for i, item in enumerate(value):
                rows |= flat(item, f"{here}.{i}")
        else:
            rows[here] = value
    return rows
