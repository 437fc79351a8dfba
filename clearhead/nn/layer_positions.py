"""Position schemes of single layers: a tower's spec and blocks in, blocks with schemes of their own out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import SpecError
from .block import BlockModule
from .positions import Positions, PositionScheme

if TYPE_CHECKING:
    from .tower import Tower


def build_layer_positions(spec: Tower, blocks: Sequence[BlockModule]) -> None:
    """Give each block the position scheme of its own, if its spec has one.

    Schemes without parameters are equal where their specs are, so the layers of a kind share one.
    """
    fixed: dict[Positions, PositionScheme] = {}
    for i, block in enumerate(blocks):
        own = spec.pattern[i % len(spec.pattern)]
        if own.positions is None:
            continue
        if own.positions in fixed:
            block.positions = fixed[own.positions]
            continue
        scheme = own.positions.build(spec.dims(own), spec.width)
        if type(scheme).add is not PositionScheme.add:
            name = type(own.positions).__name__
            raise SpecError(f"{name} positions are added to the embeddings: set them in Tower, not in Block")
        if not list(scheme.parameters()):
            fixed[own.positions] = scheme
        block.positions = scheme
