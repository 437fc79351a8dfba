"""The guard: ASGI middleware that admits only requests of the studio's own page, and adds security headers.

It is the outermost layer and denies by default. A page of another site can make a browser send requests here;
it cannot make it send our Host and our Origin together with a JSON body.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Iterable
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_REQUEST_BYTES = 2 * 2**20  # bytes of a request
SAFE = ("GET", "HEAD")
ALL_INTERFACES = ("0.0.0.0", "::")  # listening on every address of this machine
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Strings become HTML nowhere but in the page's own compiled templates.
        "require-trusted-types-for 'script'",
        "trusted-types svelte-trusted-html",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class TooLargeError(HTTPException):
    """A body beyond the limit. An HTTPException, because FastAPI passes only those through."""

    def __init__(self) -> None:
        super().__init__(413, f"the request is larger than {MAX_REQUEST_BYTES:,} bytes")


class Guard:
    """Middleware that checks host, origin, key and content type, and adds security headers."""

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], proxied: Iterable[str] = (), key: str | None = None
    ) -> None:
        """`proxied` are host names of a proxy in front of the studio, which may use https."""
        self.app, self.key = app, key
        names = frozenset(name.lower() for name in proxied)
        self.hosts = frozenset(host.lower() for host in hosts) | names
        self.origins = frozenset(f"http://{host}" for host in self.hosts)
        self.origins |= frozenset(f"https://{name}" for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, error = refusal
            await JSONResponse({"error": error}, status)(scope, receive, send_with_headers)
            return
        await self.app(scope, _limited(receive), send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and error of a request that is not allowed; None if it is."""
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self.hosts:
            return 421, "this host name is not accepted; use the address that clearhead studio printed"
        is_api = scope["path"].startswith(("/api/", "/openapi.json"))
        if is_api and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests from other sites are not allowed"
        if is_api and self.key is not None and not self._has_key(headers):
            return 401, "a key is needed; open the address that clearhead studio printed"
        if scope["method"] in SAFE:
            return None
        if headers.get("origin", "") not in self.origins:
            return 403, "only the studio's own page may send this request"
        if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            return 415, "the body of a request must be JSON (content-type: application/json)"
        if int(headers.get("content-length") or 0) > MAX_REQUEST_BYTES:
            return 413, f"the request is larger than {MAX_REQUEST_BYTES:,} bytes"
        return None

    def _has_key(self, headers: Headers) -> bool:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(token.encode(), (self.key or "").encode())


def _limited(receive: Receive) -> Receive:
    """Limit the size of a body while it is received: its content-length header may be wrong."""
    received = 0

    async def counting() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_REQUEST_BYTES:
            raise TooLargeError()
        return message

    return counting


def addresses(host: str, port: int) -> list[str]:
    """The values of the Host header that are accepted: the loopback names and `host`, or, when listening on
    all interfaces, every address of this machine."""
    names = {"127.0.0.1", "localhost", "[::1]"}
    names |= own_addresses() if host in ALL_INTERFACES else {_bracketed(host)}
    return [f"{name}:{port}" for name in names] + (list(names) if port == 80 else [])


def own_addresses() -> set[str]:
    """This machine's name, the addresses it resolves to, and the address of the default route."""
    names = {socket.gethostname()}
    with suppress(OSError):
        names |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; it only selects the route
        names.add(probe.getsockname()[0])
    return {_bracketed(address.partition("%")[0]) for address in names}


def _bracketed(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host
