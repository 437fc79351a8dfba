"""Families: their lineage, diagrams with costs, and the differences between two of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from ...bundle import spec_of
from ...errors import InputError
from ...families import FAMILIES, Family, family_and_config
from ...lens import describe_positions, differences, shape
from ...lens.cost import cost
from ...nn import Attention, FeedForward, Model, Tower
from ..studio import Studio

SizeName = Annotated[str, Field(min_length=1, max_length=60)]


class Sliders(BaseModel):
    """Changes to a named size (depth, width, heads), and the call whose cost is estimated."""

    name: SizeName
    depth: int | None = Field(default=None, ge=1, le=256)
    width: int | None = Field(default=None, ge=8, le=32_768)
    heads: int | None = Field(default=None, ge=1, le=256)
    hidden: int | None = Field(default=None, ge=8, le=131_072)
    batch: int = Field(default=1, ge=1, le=65_536)
    length: int = Field(default=128, ge=1, le=1_048_576)
    training: bool = False


class ComparedSizes(BaseModel):
    one: SizeName
    two: SizeName
    length: int = Field(default=128, ge=1, le=65_536)


def routes(studio: Studio) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["families"])

    @router.get("/families")
    def families() -> list[dict[str, Any]]:
        return [_row(family) for family in FAMILIES.values()]

    @router.post("/families/picture")
    def picture(sliders: Sliders) -> dict[str, Any]:
        """The spec as boxes, and the cost of a call. No weights are allocated."""
        family, spec = _spec(sliders.name)
        changed = _apply_sliders(spec, sliders)
        total = cost(changed, batch=sliders.batch, length=sliders.length, training=sliders.training)
        sides = {side: _tower(tower) for side, tower in changed.towers.items()}
        first = next(iter(changed.towers.values()))
        head = type(getattr(changed, "head", None)).__name__
        return {
            "name": sliders.name,
            "title": family.title,
            "towers": sides,
            "head": {"NoneType": None, "TokenHead": "logits"}.get(head, head),
            "pair": changed.is_encoder_decoder,
            "cost": total.to_dict(),
            "at": {key: shape(first)[key] for key in ("width", "heads", "hidden")} | {"depth": first.depth},
        }

    @router.post("/families/diff")
    def diff(sizes: ComparedSizes) -> dict[str, Any]:
        """Which choices differ, and the cost of the first spec with each one changed."""
        (_, one), (_, two) = _spec(sizes.one), _spec(sizes.two)
        rows = [
            {
                "place": change.places[0],
                "more": len(change.places) - 1,
                "before": str(change.before),
                "after": str(change.after),
                "parameters": None if change.cost is None else change.cost.parameters,
                "flops": None if change.cost is None else change.cost.flops,
            }
            for change in differences(one, two, sizes.length)
        ]
        before, after = (cost(spec, length=sizes.length) for spec in (one, two))
        return {"changes": rows, "before": before.to_dict(), "after": after.to_dict()}

    return router


def _row(family: Family) -> dict[str, Any]:
    return {
        "name": family.name,
        "title": family.titles,
        "year": family.year,
        "mode": family.mode,
        "uses": family.uses,
        "parent": family.parent,
        "sizes": list(family.sizes),
    }


def _spec(name: str) -> tuple[Family, Model]:
    family, config = family_and_config(name)
    return family, spec_of(family, config, "tokens")


def _apply_sliders(spec: Model, sliders: Sliders) -> Model:
    """Apply the sliders; the spec raises an error for sizes that do not fit together."""
    sizes = {"depth": sliders.depth, "width": sliders.width}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if sizes:
        spec = spec.edit(Tower, **sizes)
    if sliders.heads is not None:
        spec = spec.edit(Attention, heads=sliders.heads, kv_heads=None)
    if sliders.hidden is not None:
        kinds = {
            type(node) for node in spec.nodes() if isinstance(node, FeedForward) and hasattr(node, "hidden")
        }
        if not kinds:
            raise InputError("this family has no hidden width to change")
        for kind in kinds:
            spec = spec.edit(kind, hidden=sliders.hidden)
    return spec


def _tower(tower: Tower) -> dict[str, Any]:
    block = tower.pattern[0]
    return {
        **shape(tower),
        "order": block.order,
        "norm": {"Layer": "LayerNorm", "NonParametric": "LayerNorm", "RMS": "RMSNorm"}.get(
            type(block.norm).__name__, ""
        ),
        "feedforward": f"{type(block.feedforward).__name__} {getattr(block.feedforward, 'act', '')}".strip(),
        "positions": describe_positions(tower.positions),
        "kernel": type(getattr(block.attention, "kernel", block.attention)).__name__,
        "causal": tower.causal,
        "cross": block.cross is not None,
        "last_norm": tower.last_norm is not None,
    }
