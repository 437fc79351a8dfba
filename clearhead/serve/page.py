"""The page: built files in, answers out. They are read once; no name from a request ever reaches the disk."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}


def pages() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    for entry in (files("clearhead.serve") / "static").iterdir():
        content = entry.read_bytes()
        where = "/" if entry.name == "index.html" else f"/{entry.name}"
        router.add_api_route(where, _answer(content, KINDS[entry.name.rsplit(".", 1)[-1]]), methods=["GET"])
    return router


def _answer(content: bytes, kind: str):  # type: ignore[no-untyped-def]  # a route, typed by FastAPI
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    return answer
