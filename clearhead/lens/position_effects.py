"""Effects of a position scheme: a scheme in; what it adds, how it rotates and its attention bias out.

A scheme is observed through its three methods (add, rotate, bias), so a new one needs no code here.
Shape suffixes: T positions, D width, E head width, H heads.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, nearest
from ..nn import (
    Everyone,
    Learned,
    MultiHead,
    Normal,
    Positions,
    PositionScheme,
    RelativeBuckets,
    Rope,
    Sinusoidal,
    View,
    initialise,
)
from ..spec import Dims

ALIASES = {"t5": "RelativeBuckets", "none": "NoPositions", "sine": "Sinusoidal"}  # other common names


@dataclass(frozen=True, eq=False)
class PositionEffects:
    """The effects of a scheme at positions 0 to T - 1; None for those it does not have."""

    name: str
    added_TD: Tensor | None  # added to the embeddings
    rotated_TE: Tensor | None  # a vector of ones after rotation
    bias_HT: Tensor | None  # added to the scores, by distance of the key to the left of the query
    wavelengths: list[float]  # in tokens, of each pair of channels

    @property
    def similarity(self) -> Tensor | None:
        """(T,): mean cosine similarity of two positions by their distance; 1 at distance 0."""
        x = self.added_TD if self.added_TD is not None else self.rotated_TE
        if x is None:
            return None
        x = torch.nn.functional.normalize(x.double(), dim=-1)
        cosine = x @ x.T
        return torch.stack([cosine.diagonal(d).mean() for d in range(len(x))])


def scheme_named(word: str, length: int = 100, width: int = 512) -> Positions:
    """A scheme by its name (rope, sinusoidal, alibi, learned, t5), with defaults and the given sizes."""
    kinds = {name.lower(): kind for name, kind in Positions.kinds().items()}
    kind = kinds.get(ALIASES.get(word.lower(), word).lower())
    if kind is None:
        raise InputError(f"there is no position scheme {word!r}; {nearest(word, [*kinds, *ALIASES])}")
    rows = math.isqrt(length)
    sizes: dict[str, Any] = {
        "length": length,
        "shape": (rows, -(-length // rows)),  # a grid with room for all positions
        "widths": (width // 2, width - width // 2),
        "schemes": (Learned(length=length), RelativeBuckets()),
    }
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    if unknown := [name for name in needed if name not in sizes]:
        raise InputError(
            f"{kind.__name__} needs {', '.join(unknown)}, which has no default: draw it from Python, "
            f"lens.position_effects({kind.__name__}({unknown[0]}=...))"
        )
    scheme = kind(**{name: sizes[name] for name in needed})
    assert isinstance(scheme, Positions)
    return scheme


def position_effects(
    spec: Positions, *, length: int = 100, width: int = 512, heads: int = 8
) -> PositionEffects:
    """The effects of a spec; a scheme with weights is initialised at random."""
    dims = Dims(width=width, depth=1, heads=heads, head_dim=width // heads, causal=True)
    with torch.device("meta"):
        empty = spec.build(dims, width)
    scheme = empty.to_empty(device="cpu")
    initialise(scheme, Normal(std=0.3), 0)
    return effects_in_model(scheme, spec, length=length, width=width, heads=heads, head_dim=width // heads)


@torch.no_grad()
def effects_in_model(
    scheme: PositionScheme,
    spec: Positions,
    *,
    length: int,
    width: int,
    heads: int,
    head_dim: int,
    attention: object = None,
) -> PositionEffects:
    """The effects of a scheme with the weights it has in a model; `attention` is that of the first layer."""
    length = min(length, spec.max_length or length)
    pos = torch.arange(length)[None]
    added = scheme.add(torch.zeros(1, length, width), pos)[0]
    bound = scheme.bind(View(Everyone(), 1, pos, pos))
    if isinstance(attention, MultiHead):
        bound = bound.in_layer(attention)
    # A scheme has no description of its effects, so its methods are called on simple inputs.
    ones = torch.ones(1, heads, length, head_dim)
    rotated = bound.rotate_q(ones)[0, 0]
    bias = bound.bias(0, ones, ones)
    bias_HT = None if bias is None else bias[0, :, -1].flip(-1)
    return PositionEffects(
        type(spec).__name__,
        added if bool(added.any()) else None,
        rotated if not torch.equal(rotated, ones[0, 0]) else None,
        bias_HT,
        wavelengths(spec, width, head_dim),
    )


def wavelengths(spec: Positions, width: int, head_dim: int) -> list[float]:
    """Tokens per full rotation of each pair of channels; empty for schemes without waves."""
    if isinstance(spec, Sinusoidal):
        steps = width - 2 if spec.endpoint else width
        return [2 * math.pi * spec.base ** (2 * i / steps) for i in range(-(-width // 2))]
    if isinstance(spec, Rope):
        rotated = int(head_dim * spec.fraction)
        return [2 * math.pi * spec.theta ** (2 * i / rotated) for i in range(rotated // 2)]
    return []
