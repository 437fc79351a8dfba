"""Families: how they descend, each as a picture with its costs, and what turns one into another."""

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
    """A named size, changed: how deep, how wide, how many heads; and a call to count."""

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
        """The spec as boxes, and what a call of it costs. Nothing is built."""
        family, spec = _spec(sliders.name)
        changed = _changed(spec, sliders)
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
    def diff(two: ComparedSizes) -> dict[str, Any]:
        """Which choices differ, and what each alone does to the first."""
        (_, one), (_, other) = _spec(two.one), _spec(two.two)
        rows = [
            {
                "place": change.places[0],
                "more": len(change.places) - 1,
                "before": str(change.before),
                "after": str(change.after),
                "parameters": None if change.cost is None else change.cost.parameters,
                "flops": None if change.cost is None else change.cost.flops,
            }
            for change in differences(one, other, two.length)
        ]
        totals = [cost(spec, length=two.length) for spec in (one, other)]
        return {"changes": rows, "before": totals[0].to_dict(), "after": totals[1].to_dict()}

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


def _changed(spec: Model, sliders: Sliders) -> Model:
    """Edits of the tree; sizes that do not fit together are said in one line by the spec itself."""
    changes: list[tuple[Any, dict[str, Any]]] = []
    tower = {
        name: getattr(sliders, name) for name in ("depth", "width") if getattr(sliders, name) is not None
    }
    changes += [(Tower, tower)] if tower else []
    changes += [(Attention, {"heads": sliders.heads, "kv_heads": None})] if sliders.heads is not None else []
    for kind, change in changes:
        spec = spec.edit(kind, **change)
    if sliders.hidden is not None:
        kinds = {
            type(node) for node in spec.nodes() if isinstance(node, FeedForward) and hasattr(node, "hidden")
        }
        if not kinds:
            raise InputError("this family has no hidden width to change")
        for each in kinds:
            spec = spec.edit(each, hidden=sliders.hidden)
    return spec


def _tower(tower: Tower) -> dict[str, Any]:
    block = tower.pattern[0]
    return {
        **shape(tower),
        "order": block.order,
        "norm": {"Layer": "LayerNorm", "RMS": "RMSNorm"}.get(type(block.norm).__name__, ""),
        "feedforward": f"{type(block.feedforward).__name__} {getattr(block.feedforward, 'act', '')}".strip(),
        "positions": describe_positions(tower.positions),
        "kernel": type(getattr(block.attention, "kernel", block.attention)).__name__,
        "causal": tower.causal,
        "cross": block.cross is not None,
        "last_norm": tower.last_norm is not None,
    }
