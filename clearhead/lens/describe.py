"""Describing: a spec in, words and numbers that a person reads out."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..nn import (
    Adaptive,
    Alibi,
    Attention,
    Learned,
    NoPositions,
    Positions,
    RelativeBuckets,
    Rope,
    Sinusoidal,
    Softmax,
    TokenMixer,
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
    """How far back each layer of the repeating pattern looks; None is all the way."""
    looks = [getattr(block.attention, "window", None) for block in tower.pattern]
    return [None if look is None else look[0] + 1 for look in looks]


def describe_positions(positions: Positions) -> str:
    """A position scheme in a few words."""
    if isinstance(positions, Learned):
        return f"learned, {positions.length}"
    if isinstance(positions, Rope):
        turned = "" if positions.fraction == 1 else f" on {positions.fraction:.0%} of each head"
        stretched = f", {type(positions.stretch).__name__}" if positions.stretch else ""
        return f"rotary, theta {positions.theta:g}{turned}{stretched}"
    if isinstance(positions, RelativeBuckets):
        return f"{positions.buckets} distance buckets"
    names = {NoPositions: "none", Sinusoidal: "sinusoidal", Alibi: "linear distance penalty (ALiBi)"}
    return names.get(type(positions), type(positions).__name__)


def sentence(tower: Tower) -> str:
    """A tower in one line: `6 layers x 12 heads (width 384, head 32), post-norm, learned, 512, gelu`."""
    at, block = shape(tower), tower.pattern[0]
    heads = f"{at['heads']} heads"
    if at["kv_heads"] != at["heads"]:
        heads += f" over {at['kv_heads']} keys"
    kind = (
        f"{type(block.feedforward).__name__} {at['hidden']} {getattr(block.feedforward, 'act', '')}".strip()
    )
    parts = [
        f"{at['layers']} layers x {heads} (width {at['width']}, head {at['head_dim']})",
        f"{block.order}-norm ({type(block.norm).__name__})",
        f"positions {describe_positions(tower.positions)}",
        kind,
    ]
    mixing = _mixing(block.attention)
    if mixing:
        parts.insert(1, mixing)
    near = [str(look) for look in at["window"] if look]
    if near:
        parts.append(f"window {', '.join(near)} in {len(near)} of {len(at['window'])} layers")
    if tower.distinct:
        parts.append(f"{tower.distinct} set of weights for all layers")
    return " · ".join(parts)


def _mixing(mixer: TokenMixer) -> str:
    """What mixes the tokens, where it is not the softmax of all scores."""
    if not isinstance(mixer, Attention):
        return str(mixer)
    return "" if isinstance(mixer.kernel, Softmax) else str(mixer.kernel)


def flat(spec: Any, path: str = "") -> dict[str, Any]:
    """A spec as `{"tower.block.attention.heads": 12, ...}`, kinds included."""
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
