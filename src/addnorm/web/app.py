"""The live site as an ASGI application.

    /                overview         /ranking /curves /scalars /lengths /cost /record
    /model           one model, by ?variant=
    /checkpoints     measured checkpoints, the first page of a folder without a study
    /checkpoint      one of them, by ?variant=
    /curves.json     data for the script that draws curves
    /curves.csv      what a page of curves shows, as a file; also /curves.svg and /curves.png
    /events          server-sent events: changed sections as HTML
    /static/NAME     style sheet, scripts, icon

No part of an address becomes a path in the study's folder: models are looked up among the study's, static files in a list that
is made when the server starts.
"""

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from addnorm.errors import InputError
from addnorm.reporting.changes import EVERYTHING, shown_on
from addnorm.reporting.reader import reader_of
from addnorm.reporting.render import STATIC, Pages, asset_hash, query_of, shows_results
from addnorm.reporting.sections import home_of, pages_of
from addnorm.reporting.sections import pages as page_names
from addnorm.reporting.sections.curves import charts
from addnorm.reporting.sections.curves.download import Kind, download
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import AXES, CHECKPOINT_PAGE, METRICS, OF_ONE, SMOOTHING, Listing, Selection, View
from addnorm.web.live import Live
from addnorm.web.peeks import Peeks
from addnorm.web.security import Guard, hosts_of, is_loopback
from addnorm.words import LANGUAGES, preferred

_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".csv": "text/csv",
    ".png": "image/png",
}
_LISTING = tuple(field.name for field in fields(Listing))
_REMIND_S = 15.0
"""Seconds between lines that keep an idle connection open through proxies."""


def application(
    folder: Path, *, host: str = "127.0.0.1", token: str | None = None, live: Live | None = None
) -> Starlette:
    """The site of a study's folder as an ASGI application.

    Args:
        folder: the study's folder.
        host: the address that it will be served at; determines the accepted host names.
        token: secret that visitors must send; required for any address but loopback.
        live: live updates of the folder; made if not given.

    Raises:
        InputError: no study and no measured checkpoints there, or an address beyond this machine without a token.
        Damaged: the study's plan is damaged.
    """
    if token is None and not is_loopback(host):
        raise InputError(
            f"an address that other machines can reach needs a token: {host!r} came without one. Give --token."
        )
    live = live or Live(reader_of(folder))
    pages = Pages()
    pages.warm(live.now()[0])
    site = _Site(live, pages, Peeks(folder))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        live.start()
        yield
        await run_in_threadpool(live.stop)

    routes = [Route("/" if name == "overview" else f"/{name}", site.page_at(name)) for name in page_names()]
    routes += [
        Route("/curves.json", site.curves),
        *(Route(f"/curves.{kind}", site.curves_as(kind)) for kind in get_args(Kind)),
        Route("/events", site.events),
        *(Route(f"/static/{path.name}", _static(path)) for path in sorted(STATIC.iterdir())),
    ]
    guard = Middleware(Guard, hosts=hosts_of(host), any_address=host in ("0.0.0.0", "::"), token=token)
    gzip = Middleware(GZipMiddleware, minimum_size=1024)
    return Starlette(
        routes=routes, middleware=[guard, gzip], lifespan=lifespan, exception_handlers={404: site.not_found}
    )


class _Site:
    def __init__(self, live: Live, pages: Pages, peeks: Peeks) -> None:
        self.live, self.pages, self.peeks = live, pages, peeks
        self._drawing = threading.Lock()
        """Held while a figure is drawn, for which matplotlib changes settings of the whole process."""

    def page_at(self, name: str) -> Callable[[Request], Any]:
        async def page(request: Request) -> Response:
            return await run_in_threadpool(self._page, name, request)

        return page

    async def not_found(self, request: Request, error: Exception) -> Response:
        return await run_in_threadpool(self._problem, request, f"{request.url.path}")

    async def curves(self, request: Request) -> Response:
        def answer() -> Response:
            try:
                first, *more = charts(self.live.now()[0], _selection(request))
                return JSONResponse({**first.to_json(), "more": [each.to_json() for each in more]})
            except InputError as error:
                return JSONResponse({"problem": str(error)}, status_code=404)

        return await run_in_threadpool(answer)

    def curves_as(self, kind: Kind) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            def made() -> Response:
                try:
                    found = charts(self.live.now()[0], _selection(request))
                except InputError as error:
                    return JSONResponse({"problem": str(error)}, status_code=404)
                with self._drawing:
                    content = download(found, kind, _language(request))
                headers = {"Content-Disposition": f'attachment; filename="curves.{kind}"'}
                return Response(content, media_type=_TYPES[f".{kind}"], headers=headers)

            return await run_in_threadpool(made)

        return answer

    async def events(self, request: Request) -> Response:
        view = _view("overview", request)
        page = request.query_params.get("page", "overview")
        if page not in pages_of(self.live.now()[0]):
            return JSONResponse({"problem": f"no page {page!r}"}, status_code=404)
        number = self._number_of(request.headers.get("last-event-id") or request.query_params.get("after", ""))
        stream = self._changes(page, view, number)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _changes(self, page: str, view: View, number: int) -> AsyncIterator[str]:
        woken, leave = self.live.listen()
        try:
            yield "retry: 1000\n\n"
            while not self.live.is_stopped:
                woken.clear()
                snapshot, newest, sections, runs = self.live.since(number)
                if newest != number or EVERYTHING in sections:
                    number = newest
                    content = await run_in_threadpool(self._change, page, view, snapshot, sections, sorted(runs))
                    yield f"event: change\nid: {self.live.epoch}-{newest}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"
                    continue
                try:
                    await asyncio.wait_for(woken.wait(), timeout=_REMIND_S)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            leave()

    def _change(
        self, page: str, view: View, snapshot: Snapshot, sections: frozenset[str], runs: list[str]
    ) -> dict[str, Any]:
        if EVERYTHING in sections:
            return {"reload": True, "sections": {}, "runs": runs}
        if shows_results(page, snapshot):
            self.peeks.record(snapshot)
        names = shown_on(page, sections)
        if view.variant is not None:
            own = {place.folder for place in snapshot.measured_in(view.variant)}
            names = names if own & set(runs) else []
        own_view = replace(view, page=page)
        return {
            "reload": False,
            "sections": {n: self.pages.section(n, snapshot, own_view) for n in names},
            "runs": runs,
        }

    def _page(self, name: str, request: Request) -> Response:
        snapshot, number = self.live.now()
        try:
            view = _view(name, request)
        except InputError as error:
            return self._problem(request, str(error))
        if name == "overview" and not snapshot.is_study:
            name = home_of(snapshot)
            view = replace(view, page=name)
        of_one = name in OF_ONE or view.variant is not None
        if of_one and view.variant not in (snapshot.checkpoints if name == CHECKPOINT_PAGE else snapshot.variants):
            return self._problem(request, str(view.variant or ""))
        if name not in pages_of(snapshot):
            return self._problem(request, request.url.path)
        # A HEAD request shows nothing.
        problem = self.peeks.record(snapshot) if shows_results(name, snapshot) and request.method == "GET" else None
        chrome = self._chrome(request, view, number)
        return HTMLResponse(self.pages.page(snapshot, replace(view, page=name, peek_problem=problem), **chrome))

    def _problem(self, request: Request, problem: str) -> Response:
        snapshot, number = self.live.now()
        view = View(page=home_of(snapshot), language=_language(request), link=_links(request))
        return HTMLResponse(
            self.pages.problem(snapshot, view, problem, **self._chrome(request, view, number)), status_code=404
        )

    def _chrome(self, request: Request, view: View, number: int) -> dict[str, Any]:
        asked = {
            "page": view.page,
            "lang": view.language,
            "variant": view.variant,
            "after": f"{self.live.epoch}-{number}",
            **{name: value for name, value in vars(view.listing).items() if value},
        }
        return {
            "asset": lambda name: f"/static/{name}?v={asset_hash(name)}",
            "in_language": lambda code: str(
                request.url.include_query_params(lang=code).replace(scheme="", netloc="")
            ).removeprefix("//"),
            "events": f"/events{query_of(**asked)}",
            "number": number,
        }

    def _number_of(self, text: str) -> int:
        """The number in an event's id; -1 if it is another server's or not an id."""
        epoch, _, number = text.partition("-")
        return int(number) if epoch == self.live.epoch and number.isdecimal() and len(number) < 16 else -1


def _view(page: str, request: Request) -> View:
    query = request.query_params
    of_one = (*OF_ONE, "scalars")
    one = page in of_one or (page == "overview" and query.get("page") in of_one)
    return View(
        page=page,
        language=_language(request),
        link=_links(request),
        variant=query.get("variant") if one else None,
        selection=_selection(request),
        listing=Listing(**{name: query.get(name, "") for name in _LISTING}),
    )


def _selection(request: Request) -> Selection:
    query = request.query_params
    first, last = _place(query.get("first")), _place(query.get("last"))
    smooth = _place(query.get("smooth"))
    return Selection(
        metrics=tuple(sorted(dict.fromkeys(query.getlist("metric")), key=_order_of_metric)) or Selection.metrics,
        mode="seeds" if query.get("mode") == "seeds" else "mean",
        variants=tuple(query.getlist("variant")),
        log="log" if query.get("log") == "log" else "linear",
        x=query["x"] if query.get("x") in AXES else AXES[0],
        versus=query.get("versus", ""),
        smooth=smooth if smooth in SMOOTHING else 0.0,
        y="all" if query.get("y") == "all" else "robust",
        first=first or 0.0,
        last=last,
    )


def _order_of_metric(metric: str) -> int:
    """So that charts stand in the order of the form; unknown ones are refused by name."""
    return METRICS.index(metric) if metric in METRICS else len(METRICS)


def _place(text: str | None) -> float | None:
    """A number of at least 0; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


def _language(request: Request) -> str:
    asked = request.query_params.get("lang")
    return asked if asked in LANGUAGES else preferred(request.headers.get("accept-language", ""))


def _links(request: Request) -> Callable[..., str]:
    """Addresses of pages, which keep the language if it was asked for by name."""
    asked = request.query_params.get("lang")
    lang = asked if asked in LANGUAGES else None

    def link(page: str, **query: Any) -> str:
        path = "/" if page == "overview" else f"/{page}"
        return path + query_of(lang=lang, **query)

    return link


def _static(path: Path) -> Callable[[Request], Any]:
    content, kind = path.read_bytes(), _TYPES[path.suffix]

    async def answer(request: Request) -> Response:
        lasting = (
            "public, max-age=31536000, immutable"
            if request.query_params.get("v") == asset_hash(path.name)
            else "no-cache"
        )
        return Response(content, media_type=kind, headers={"Cache-Control": lasting})

    return answer
