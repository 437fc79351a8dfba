"""The application: a Studio in, an ASGI app out. Routes inside, the guard outside."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from .. import __version__
from ..errors import ClearheadError, one_line
from .desk import BusyError
from .guard import Guard, addresses
from .page import pages
from .routes import families, generate, models, runs, steps, traces
from .shelf import UnknownError
from .studio import Studio


def create_app(
    studio: Studio,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    key: str | None = None,
    proxied: Iterable[str] = (),
) -> ASGIApp:
    """`host` and `port` are where we listen, `proxied` the names of a proxy in front of us; a `key` is
    asked for on every API request."""
    app = FastAPI(title="Clearhead studio", version=__version__, docs_url=None, redoc_url=None)
    app.add_exception_handler(ClearheadError, _refused)
    app.add_exception_handler(RequestValidationError, _misshapen)
    app.add_exception_handler(HTTPException, _http)
    for screen in (models, traces, generate, steps, runs, families):
        app.include_router(screen.routes(studio))
    app.include_router(pages())
    return Guard(app, hosts=addresses(host, port), proxied=proxied, key=key)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    status = 404 if isinstance(error, UnknownError) else 429 if isinstance(error, BusyError) else 400
    return JSONResponse({"error": one_line(str(error))}, status)


async def _misshapen(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    return JSONResponse({"error": one_line(f"{where or 'the request'}: {first['msg']}")}, 422)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)
