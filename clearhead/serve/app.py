"""The application: a Studio in; an ASGI app out, with the guard around all routes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.resources import files

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from .. import __version__
from ..errors import ClearheadError, one_line
from .compute_queue import BusyError
from .guard import Guard, addresses
from .registry import UnknownIdError
from .routes import families, generate, models, runs, steps, traces
from .studio import Studio

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}


def create_app(
    studio: Studio,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    key: str | None = None,
    proxied: Iterable[str] = (),
) -> ASGIApp:
    """`host` and `port` are the listening address, `proxied` the host names of a proxy in front of it; a
    `key` is required on every API request."""
    app = FastAPI(title="Clearhead studio", version=__version__, docs_url=None, redoc_url=None)
    app.add_exception_handler(ClearheadError, _on_clearhead_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    for screen in (models, traces, generate, steps, runs, families):
        app.include_router(screen.routes(studio))
    app.include_router(page_routes())
    return Guard(app, hosts=addresses(host, port), proxied=proxied, key=key)


async def _on_clearhead_error(request: Request, error: Exception) -> JSONResponse:
    status = 404 if isinstance(error, UnknownIdError) else 429 if isinstance(error, BusyError) else 400
    return JSONResponse({"error": one_line(str(error))}, status)


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    return JSONResponse({"error": one_line(f"{where or 'the request'}: {first['msg']}")}, 422)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)


def page_routes() -> APIRouter:
    """Routes of the static files of the page, read once at startup."""
    router = APIRouter(include_in_schema=False)
    for entry in (files("clearhead.serve") / "static").iterdir():
        content = entry.read_bytes()
        path = "/" if entry.name == "index.html" else f"/{entry.name}"
        media_type = MEDIA_TYPES[entry.name.rsplit(".", 1)[-1]]
        router.add_api_route(path, _file_endpoint(content, media_type), methods=["GET"])
    return router


def _file_endpoint(content: bytes, media_type: str):  # type: ignore[no-untyped-def]  # a route, typed by FastAPI
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def endpoint(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return endpoint
