"""Parts that the site of one study and the site of many share: the guard, static files, the stream of changes."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from addnorm.errors import InputError
from addnorm.reporting.render import STATIC, asset_hash
from addnorm.web.listeners import Watcher, stream
from addnorm.web.security import Guard, hosts_of, is_loopback

TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".csv": "text/csv",
    ".png": "image/png",
}
"""Media types of the files that a site serves, by suffix."""


def require_token(host: str, token: str | None) -> None:
    """Refuse to serve other machines without a token.

    Raises:
        InputError: an address beyond this machine without a token.
    """
    if token is None and not is_loopback(host):
        raise InputError(
            f"an address that other machines can reach needs a token: {host!r} came without one. Give --token."
        )


def guarded(
    routes: Sequence[BaseRoute],
    not_found: Callable[[Request, Exception], Any],
    watcher: Watcher,
    *,
    host: str,
    token: str | None,
    can_write: bool,
) -> Starlette:
    """An application behind the guard, whose watcher is at work while it is served."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watcher.start()
        yield
        await run_in_threadpool(watcher.stop)

    is_any = host in ("0.0.0.0", "::")
    guard = Middleware(Guard, hosts=hosts_of(host), any_address=is_any, token=token, can_write=can_write)
    gzip = Middleware(GZipMiddleware, minimum_size=1024)
    return Starlette(routes=routes, middleware=[guard, gzip], lifespan=lifespan, exception_handlers={404: not_found})


def static_routes() -> list[Route]:
    """Style sheet, scripts and icon."""
    return [Route(f"/static/{path.name}", _static(path)) for path in sorted(STATIC.iterdir())]


def asset(name: str) -> str:
    """Address of a static file, under which it can be cached without limit."""
    return f"/static/{name}?v={asset_hash(name)}"


def event_stream(
    watcher: Watcher, request: Request, change_after: Callable[[int], tuple[int, dict[str, Any] | None]]
) -> Response:
    """An answer of server-sent events, which no proxy may hold back: all changes after the last one that the page has seen."""
    last_seen = str(request.headers.get("last-event-id") or request.query_params.get("after", ""))
    lines = stream(watcher, last_seen, change_after)
    return StreamingResponse(lines, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _static(path: Path) -> Callable[[Request], Any]:
    content, kind = path.read_bytes(), TYPES[path.suffix]

    async def answer(request: Request) -> Response:
        lasting = (
            "public, max-age=31536000, immutable"
            if request.query_params.get("v") == asset_hash(path.name)
            else "no-cache"
        )
        return Response(content, media_type=kind, headers={"Cache-Control": lasting})

    return answer
