"""Step by step: the lesson of attention with the numbers of the user's own model."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from ..lesson import Part, lesson
from ..studio import Studio
from .traces import Asked, Kind, traced


class Lesson(Asked):
    kind: Kind = "self"
    layer: int = Field(default=0, ge=0, le=10_000)
    head: int = Field(default=0, ge=0, le=10_000)
    off: list[Part] = Field(default=[], max_length=4)


def routes(studio: Studio) -> APIRouter:
    router, desk = APIRouter(prefix="/api", tags=["steps"]), studio.desk

    @router.post("/steps")
    def steps(asked: Lesson) -> dict[str, Any]:
        with desk.turn():
            bundle = studio.shelf.bundle(asked.model)
            trace = traced(bundle, asked)
            return lesson(bundle, trace, asked.kind, asked.layer, asked.head, asked.off)

    return router
