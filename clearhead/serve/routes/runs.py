"""Train: start a recipe; watch, pause, save, stop and resume any run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from ...recipes import RECIPES, load_run
from ...train import read_log
from ..run_status import events, read_settings, status
from ..studio import Studio


class StartRequest(BaseModel):
    recipe: str = Field(min_length=1, max_length=60)
    name: str = Field(default="", max_length=60)
    settings: dict[str, Annotated[str, Field(max_length=1000)]] = Field(default={}, max_length=50)


class OrderRequest(BaseModel):
    order: Literal["pause", "go on", "save", "stop"]


def routes(studio: Studio) -> APIRouter:
    router, registry, runs = APIRouter(prefix="/api", tags=["train"]), studio.registry, studio.runs

    @router.get("/recipes")
    def recipes() -> list[dict[str, Any]]:
        return [_recipe(name) for name in RECIPES]

    @router.post("/runs")
    def start(request: StartRequest) -> dict[str, Any]:
        entry = runs.start(request.recipe, request.name, request.settings)
        return {"id": entry.id, "name": entry.name, "where": registry.where(entry)}

    @router.get("/runs/{id}")
    def about(id: str) -> dict[str, Any]:
        entry = registry.find(id)
        checkpoints = registry.checkpoints(entry)
        return {
            "id": id,
            "name": entry.name,
            "where": registry.where(entry),
            "settings": read_settings(entry.path),
            "model": id if entry.is_model else checkpoints[-1]["id"] if checkpoints else None,
            "checkpoints": checkpoints,
            "failure": runs.failure(entry),
            **status(entry.path, starting=runs.starting(entry)),
        }

    @router.get("/runs/{id}/records")
    def records(id: str) -> list[dict[str, Any]]:
        """All records of a run, to compare it with another."""
        return read_log(registry.find(id).path)

    @router.post("/runs/{id}/order")
    def order(id: str, request: OrderRequest) -> dict[str, Any]:
        entry = registry.find(id)
        runs.order(entry, request.order)
        registry.forget(id)
        return status(entry.path, starting=runs.starting(entry))

    @router.get("/runs/{id}/events")
    async def live(id: str, last_event_id: Annotated[str, Header(max_length=20)] = "") -> StreamingResponse:
        """Server-sent events; with `Last-Event-ID` only those after that event."""
        after = int(last_event_id) if last_event_id.isascii() and last_event_id.isdigit() else 0
        entry = registry.find(id)
        stream = events(entry.path, after, lambda: runs.starting(entry))
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    return router


def _recipe(name: str) -> dict[str, Any]:
    run = load_run(name)
    return {
        "name": name,
        "task": run.task,
        "about": run.about,
        "source": run.data.source,
        "family": str(run.model.get("family")),
        "steps": run.train.steps,
        "lr": run.train.lr,
        "valid_every": run.train.valid_every,
    }
