"""The live site as an ASGI application.

    /                overview         /ranking /curves /scalars /lengths /cost /record
    /model           one model, by ?variant=
    /checkpoints     measured checkpoints, the first page of a folder without a study
    /checkpoint      one of them, by ?variant=
    /log             one run's log and events, by ?run=
    /curves.json     data for the script that draws curves
    /curves.csv      what a page of curves shows, as a file; also /curves.svg and /curves.png
    /events          server-sent events: changed sections as HTML
    /notes           takes notes and tags from this server's own forms, where they may be written
    /static/NAME     style sheet, scripts, icon

No part of an address becomes a path in the study's folder: models are looked up among the study's, static files in a list that
is made when the server starts.
"""

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from addnorm.errors import AddnormError, InputError
from addnorm.reporting.changes import EVERYTHING, shown_on
from addnorm.reporting.reader import reader_of
from addnorm.reporting.render import Pages, query_of, shows_results
from addnorm.reporting.sections import front_of, pages_of
from addnorm.reporting.sections import pages as page_names
from addnorm.reporting.sections.curves import charts, metric_title
from addnorm.reporting.sections.curves.download import Kind, download
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import CHECKPOINT_PAGE, LOG_PAGE, MODEL_PAGE, OF_ONE, View
from addnorm.store.extension import hashes
from addnorm.store.peeks import peeks, record_peek
from addnorm.web.addresses import (
    address_after_picking,
    asked_of,
    in_language,
    language_of,
    links_of,
    selection_of,
    view_of,
)
from addnorm.web.frame import TYPES, asset, event_stream, guarded, require_token, static_routes
from addnorm.web.live import Live
from addnorm.web.note_writer import Forbidden, Notes, NoteWriter
from addnorm.words import phrases

_drawing = threading.Lock()
"""Held while a figure is drawn, for which matplotlib changes settings of the whole process."""


def application(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    live: Live | None = None,
    notes: Notes = "local",
) -> Starlette:
    """The site of a study's folder as an ASGI application.

    Args:
        folder: the study's folder.
        host: the address that it will be served at; determines the accepted host names.
        token: secret that visitors must send; required for any address but loopback.
        live: live updates of the folder; made if not given.
        notes: where visitors may write notes: served to this machine alone (`local`), always or never.

    Raises:
        InputError: no study and no measured checkpoints there, or an address beyond this machine without a token.
        Damaged: the study's plan is damaged.
    """
    require_token(host, token)
    live = live or Live(reader_of(folder))
    site = StudySite(folder, live, NoteWriter.at(host, notes))
    routes = [*site.routes(), *static_routes()]
    return guarded(routes, site.not_found, live, host=host, token=token, can_write=site.notes is not None)


# Only looks at new results are recorded, not every loading of a page: once per set of finished runs, and not if a
# look at as many runs of the same plan is on record already, from another page or from `addnorm rank`. Before any run
# has finished there are no results. A look that cannot be recorded (a full disk, a folder of somebody else) does not
# hide the page; the page says so, since seeds that are added later would count as planned although somebody had
# looked.
class Peeks:
    """Records looks at one study's results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: frozenset[str] = frozenset()
        self._guard = threading.Lock()

    def record(self, snapshot: Snapshot) -> str | None:
        """Record a look at the snapshot's results, if they are new.

        Returns:
            Why it could not be recorded; None if it is, or need not be.
        """
        if not snapshot.is_study:
            return None  # looks are recorded in the folder of a study, and nothing is written beside a table
        finished = frozenset(run.run for run in snapshot.runs if run.state == "finished")
        with self._guard:
            if finished <= self._seen:
                return None
            try:
                plan = hashes(dict(snapshot.plan))[-1]
                known = peeks(self.folder)
                if not any(look["finished"] >= len(finished) and look["plan_hash"] == plan for look in known):
                    # As `StudyFolder.record_peek`, but for the results that this page shows, which may be a moment old.
                    record_peek(self.folder, finished=len(finished), plan_hash=plan)
            except (AddnormError, OSError) as error:
                return str(error)
            self._seen = finished
            return None


class StudySite:
    """The pages of one study.

    Args:
        folder: the study's folder.
        live: live updates of the folder.
        notes: takes what visitors write; None if they may not.
        home: address of the page that lists all studies; None without one.
    """

    def __init__(self, folder: Path, live: Live, notes: NoteWriter | None, home: str | None = None) -> None:
        self.live, self.pages, self.peeks = live, Pages(), Peeks(folder)
        self.notes, self.home = notes, home
        self.pages.warm(live.now()[0])

    def routes(self) -> list[Route]:
        """Every page and file of the study."""
        pages = [Route("/" if name == "overview" else f"/{name}", partial(self._page, name)) for name in page_names()]
        writes = [Route("/notes", self.write, methods=["POST"])] if self.notes is not None else []
        return [
            *pages,
            Route("/curves.json", self.curves),
            *(Route(f"/curves.{kind}", partial(self._curves_as, kind)) for kind in get_args(Kind)),
            Route("/events", self.events),
            *writes,
        ]

    # Functions that are not async, which Starlette runs in threads: they read files, for which the event loop must not wait.
    def not_found(self, request: Request, error: Exception) -> Response:
        return self._problem(request, request.url.path)

    def curves(self, request: Request) -> Response:
        try:
            first, *more = charts(self.live.now()[0], selection_of(request))
        except InputError as error:
            return JSONResponse({"problem": str(error)}, status_code=404)
        return JSONResponse({**first.to_json(), "more": [each.to_json() for each in more]})

    def _curves_as(self, kind: Kind, request: Request) -> Response:
        snapshot = self.live.now()[0]
        try:
            drawn = charts(snapshot, selection_of(request))
        except InputError as error:
            return JSONResponse({"problem": str(error)}, status_code=404)
        with _drawing:
            content = download(drawn, kind, language_of(request), partial(metric_title, snapshot))
        headers = {"Content-Disposition": f'attachment; filename="curves.{kind}"'}
        return Response(content, media_type=TYPES[f".{kind}"], headers=headers)

    async def events(self, request: Request) -> Response:
        view = self._own(view_of("overview", request))
        page = request.query_params.get("page", "overview")
        if page not in pages_of(self.live.now()[0]):
            return JSONResponse({"problem": f"no page {page!r}"}, status_code=404)

        # A change is rendered per page and not per change: it depends on the language, the model and the listing of
        # that page. Only the sections that this page shows are rendered, in a thread of the pool, so that the event
        # loop stays free for other visitors.
        def change_after(number: int) -> tuple[int, dict[str, Any] | None]:
            snapshot, newest, sections, runs = self.live.since(number)
            if newest == number and EVERYTHING not in sections:
                return number, None
            return newest, self._change(page, view, snapshot, sections, sorted(runs))

        return event_stream(self.live, request, change_after)

    async def write(self, request: Request) -> Response:
        """Take a note or a tag, and lead back to the page that it was written on."""
        notes, words = self.notes, phrases(language_of(request))
        assert notes is not None, "the route exists only where notes may be written"
        try:
            form = await notes.form(request)
            await run_in_threadpool(self._write, form)
        except Forbidden:
            return PlainTextResponse(f"addnorm: {words('notes.forbidden')}\n", status_code=403)
        except AddnormError as error:
            return await run_in_threadpool(self._problem, request, str(error), 400)
        back = {"variant": form["variant"]} if form.get("variant") else {}
        page = MODEL_PAGE if back else "overview"
        return RedirectResponse(links_of(request)(page, **back) + "#notes", status_code=303)

    def _write(self, form: dict[str, str]) -> None:
        if self.notes is not None:
            self.notes.write(self.live.now()[0], form)
            self.live.look()  # so that the page that the visitor is led to shows it

    def _own(self, view: View) -> View:
        return view if self.notes is None else replace(view, note_key=self.notes.key)

    def _change(
        self, page: str, view: View, snapshot: Snapshot, sections: frozenset[str], runs: list[str]
    ) -> dict[str, Any]:
        if EVERYTHING in sections:
            return {"reload": True, "sections": {}, "runs": runs}
        # A live update shows results too: an open page that receives a new ranking has been looked at as much as one
        # that is loaded.
        if shows_results(page, snapshot):
            self.peeks.record(snapshot)
        names = shown_on(page, sections)
        # Pages of one model or run: their sections are named in a change of any model, since names of sections do not
        # say whose they are. The runs of the change do.
        if view.variant is not None or view.log.run:
            own = (
                {view.log.run} if view.log.run else {place.folder for place in snapshot.measured_in(view.variant or "")}
            )
            names = names if own & set(runs) else []
        own_view = replace(view, page=page)
        return {
            "reload": False,
            "sections": {n: self.pages.section(n, snapshot, own_view) for n in names},
            "runs": runs,
        }

    def _page(self, name: str, request: Request) -> Response:
        snapshot, number = self.live.now()
        # Without JavaScript a form can only send what was ticked; the redirect turns it into an address that can be
        # kept and shared.
        after = address_after_picking(request, len(snapshot.variants))
        if after is not None:
            return RedirectResponse(after, status_code=303)
        try:
            view = self._own(view_of(name, request))
        except InputError as error:
            return self._problem(request, str(error))
        if name == "overview" and snapshot.source == "checkpoints":
            name = front_of(snapshot)
            view = replace(view, page=name)
        if name == LOG_PAGE and view.log.run not in {run.run for run in snapshot.all_runs}:
            return self._problem(request, view.log.run)
        of_one = name in OF_ONE or view.variant is not None
        if of_one and view.variant not in (snapshot.checkpoints if name == CHECKPOINT_PAGE else snapshot.variants):
            return self._problem(request, str(view.variant or ""))
        if name not in pages_of(snapshot):
            return self._problem(request, request.url.path)
        # A HEAD request shows nothing.
        problem = self.peeks.record(snapshot) if shows_results(name, snapshot) and request.method == "GET" else None
        chrome = self._chrome(request, view, number)
        return HTMLResponse(self.pages.page(snapshot, replace(view, page=name, peek_problem=problem), **chrome))

    def _problem(self, request: Request, problem: str, status: int = 404) -> Response:
        snapshot, number = self.live.now()
        view = View(page=front_of(snapshot), language=language_of(request), link=links_of(request))
        return HTMLResponse(
            self.pages.problem(snapshot, view, problem, **self._chrome(request, view, number)), status_code=status
        )

    def _chrome(self, request: Request, view: View, number: int) -> dict[str, Any]:
        asked = {**asked_of(view), "after": f"{self.live.epoch}-{number}"}
        return {
            "asset": asset,
            "in_language": in_language(request),
            "events": f"{request.scope.get('root_path', '')}/events{query_of(**asked)}",
            "number": number,
            "home": self.home and f"{self.home}{query_of(lang=request.query_params.get('lang'))}",
        }
