"""Step by step: the attention lesson with the numbers of the user's own model."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from ...lens import AttentionKind
from ..lesson import RemovablePart, lesson
from ..studio import Studio
from .traces import TraceRequest, traced


class LessonRequest(TraceRequest):
    kind: AttentionKind = "self"
    layer: int = Field(default=0, ge=0, le=10_000)
    head: int = Field(default=0, ge=0, le=10_000)
    off: list[RemovablePart] = Field(default=[], max_length=4)


def routes(studio: Studio) -> APIRouter:
    router, queue = APIRouter(prefix="/api", tags=["steps"]), studio.queue

    @router.post("/steps")
    def steps(request: LessonRequest) -> dict[str, Any]:
        with queue.slot():
            bundle = studio.registry.bundle(request.model)
            trace = traced(bundle, request)
            return lesson(bundle, trace, request.kind, request.layer, request.head, request.off)

    return router
