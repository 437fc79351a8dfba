"""Home: the list of models and runs, and opening a model by its path."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from ... import __version__
from ...errors import LoadError, one_line
from ...recipes import RECIPES
from ..facts import facts
from ..registry import ModelEntry
from ..run_status import status
from ..studio import Studio


class OpenRequest(BaseModel):
    path: str = Field(min_length=1, max_length=4096)


class DroppedFolder(BaseModel):
    """A folder dropped on the page: browsers reveal its name, but not its path."""

    name: str = Field(min_length=1, max_length=255)


def routes(studio: Studio) -> APIRouter:
    router, registry = APIRouter(prefix="/api", tags=["models"]), studio.registry

    @router.get("/home")
    def home() -> dict[str, Any]:
        registry.scan()
        # Active runs first, the example last; otherwise in the order of registration.
        cards = sorted((_card(studio, entry) for entry in registry.entries()), key=_rank)
        return {"version": __version__, "folder": str(registry.home), "cards": cards, "recipes": RECIPES}

    @router.post("/models")
    def open_model(request: OpenRequest) -> dict[str, Any]:
        entry = registry.put(request.path)
        return _facts(studio, entry)

    @router.post("/models/dropped")
    def dropped(folder: DroppedFolder) -> dict[str, Any]:
        registry.scan()
        for entry in registry.entries():
            if entry.path.name == folder.name:
                return _facts(studio, entry)
        raise LoadError(
            one_line(f"{folder.name} is not in {registry.home}; browsers do not reveal the path, so type it")
        )

    @router.get("/models/{id}")
    def about(id: str) -> dict[str, Any]:
        return _facts(studio, registry.find(id))

    return router


def _facts(studio: Studio, entry: ModelEntry) -> dict[str, Any]:
    if entry.is_run and not entry.is_model:
        raise LoadError(one_line(f"{entry.name} has no model yet; watch it on the Train screen"))
    with studio.queue.slot():
        return facts(studio.registry, entry, studio.registry.bundle(entry.id))


def _card(studio: Studio, entry: ModelEntry) -> dict[str, Any]:
    registry = studio.registry
    return {
        "id": entry.id,
        "name": entry.name,
        "where": registry.where(entry),
        "kind": "example" if entry.is_example else "run" if entry.is_run else "model",
        "family": entry.family(),
        "checkpoints": registry.checkpoints(entry),
        **status(entry.path, starting=studio.runs.starting(entry)),
    }


def _rank(card: dict[str, Any]) -> int:
    return (
        0 if card["status"] in ("starting", "training", "paused") else 2 if card["kind"] == "example" else 1
    )
