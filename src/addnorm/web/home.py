"""The site of many studies as an ASGI application.

    /                        every study: question, answer, progress, cost
    /compare?study=A&study=B two of them side by side, where their losses mean the same
    /study/NAME/…            the site of one study (see `addnorm.web.app`)
    /events                  server-sent events: changed studies as HTML

A name in an address is looked up among the studies that were found; it never becomes a path.
"""

import functools
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from addnorm.reporting.formats.listing import matches
from addnorm.reporting.render import TEMPLATES, duration_in_words, environment, query_of
from addnorm.version import __version__
from addnorm.web.addresses import in_language, language_of, links_of
from addnorm.web.frame import asset, event_stream, guarded, require_token, static_routes
from addnorm.web.note_writer import Notes, NoteWriter
from addnorm.web.studies import Studies, WatchedStudy
from addnorm.web.summary import Summary, compared, obstacles, settings, summary
from addnorm.words import LANGUAGES, phrases

_HERE = Path(__file__).parent / "templates"


def home_application(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    studies: Studies | None = None,
    notes: Notes = "local",
) -> Starlette:
    """The site of all studies of a folder as an ASGI application.

    Args:
        folder: holds folders of studies.
        host: the address that it will be served at; determines the accepted host names.
        token: secret that visitors must send; required for any address but loopback.
        studies: of the folder; found if not given.
        notes: where visitors may write notes: served to this machine alone (`local`), always or never.

    Raises:
        InputError: no study there, or an address beyond this machine without a token.
    """
    require_token(host, token)
    of_folder = studies if studies is not None else Studies(folder, NoteWriter.at(host, notes))
    site = _Home(of_folder)
    routes = [
        Route("/", site.home),
        Route("/compare", site.compare),
        Route("/events", site.events),
        Mount("/study", app=site.study),
        *static_routes(),
    ]
    return guarded(routes, site.not_found, of_folder, host=host, token=token, can_write=of_folder.notes is not None)


class _Home:
    def __init__(self, studies: Studies) -> None:
        self.studies = studies
        self._environment = environment((TEMPLATES, _HERE))

    async def study(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the site of its study."""
        root = scope.get("root_path", "")
        inside = scope["path"].removeprefix(root)
        study = self.studies.at(inside)
        is_open = study is not None and await run_in_threadpool(study.open)
        if study is None or not is_open or study.app is None:
            problem = study.trouble if study is not None and study.trouble else inside.strip("/")
            answer = await run_in_threadpool(self._problem, Request(scope), problem)
            await answer(scope, receive, send)
            return
        await study.app({**scope, "root_path": f"{root}/{study.name}"}, receive, send)

    # Functions that are not async, which Starlette runs in threads: they read files, for which the event loop must not wait.
    def not_found(self, request: Request, error: Exception) -> Response:
        return self._problem(request, request.url.path)

    async def events(self, request: Request) -> Response:
        def change_after(number: int) -> tuple[int, dict[str, Any] | None]:
            newest, changed = self.studies.since(number)
            if changed is None:
                return newest, {"reload": True, "sections": {}, "runs": []}
            if newest == number:
                return number, None
            asked = request.query_params.getlist("study")
            if asked:
                is_news = any(study.name in asked for study in changed)
                sections = {"compared": self._render("_compared.html", request, self._two(request))} if is_news else {}
            else:
                sections = {f"study-{study.key}": self._row(request, study) for study in changed}
            return newest, {"reload": False, "sections": sections, "runs": []}

        return event_stream(self.studies, request, change_after)

    def home(self, request: Request) -> Response:
        number = self.studies.number
        query, tag = request.query_params.get("query", ""), request.query_params.get("tag", "")
        listed = [(study, self._summary(study)) for study in self.studies.all()]
        tags = sorted({tag for _, of in listed if of is not None for tag in of.tags})
        shown = [
            (study, of)
            for study, of in listed
            if matches(query, study.name if of is None else of.text)
            and (not tag or (of is not None and tag in of.tags))
        ]
        shown.sort(key=lambda pair: _order(pair[1]))
        if request.method == "GET":
            for study, of in shown:
                self._record(study, of)
        rows = [self._row(request, study, of) for study, of in shown]
        values = {"rows": rows, "count": len(listed), "query": query, "tag": tag, "tags": tags}
        return self._page("home.html", request, values, number)

    def compare(self, request: Request) -> Response:
        number = self.studies.number
        return self._page("compare.html", request, self._two(request), number)

    def _two(self, request: Request) -> dict[str, Any]:
        asked = list(dict.fromkeys(request.query_params.getlist("study")))
        asked_for = [study for name in asked if (study := self.studies.at(name)) is not None and study.name == name]
        opened = [study for study in asked_for if study.open()]
        values: dict[str, Any] = {"count": len(opened), "sides": [], "reasons": [], "models": [], "settings": {}}
        if len(opened) == 2:
            snapshots = [study.site.live.now()[0] for study in opened if study.site is not None]
            values["reasons"] = obstacles(*snapshots)
            if not values["reasons"]:
                values |= {"models": compared(*snapshots), "settings": settings(*snapshots)}
            summaries = [self._summary(study) for study in opened]
            values["sides"] = [(of, self._study_link(request, of.name)) for of in summaries if of is not None]
            if request.method == "GET":
                for study, of in zip(opened, summaries, strict=True):
                    self._record(study, of)
        return values

    def _problem(self, request: Request, problem: str) -> Response:
        return self._page("home_problem.html", request, {"problem": problem}, self.studies.number, status=404)

    def _summary(self, study: WatchedStudy) -> Summary | None:
        return None if study.site is None else summary(study.name, study.key, study.site.live.now()[0])

    def _record(self, study: WatchedStudy, of: Summary | None) -> None:
        """Showing an answer is a look at the study's results."""
        if of is not None and of.answer.result is not None and study.site is not None:
            study.site.peeks.record(study.site.live.now()[0])

    def _row(self, request: Request, study: WatchedStudy, of: Summary | None = None) -> str:
        of = of or self._summary(study)
        values = {"name": study.name, "key": study.key, "study": of, "trouble": study.trouble}
        values["at"] = self._study_link(request, study.name)
        return self._render("_study.html", request, values)

    def _study_link(self, request: Request, name: str) -> Any:
        return links_of(request, prefix=f"/study/{quote(name)}")

    def _page(
        self, template: str, request: Request, values: dict[str, Any], number: int, status: int = 200
    ) -> Response:
        two = request.query_params.getlist("study") if template == "compare.html" else None
        asked = {"lang": language_of(request), "study": two, "after": f"{self.studies.epoch}-{number}"}
        frame = {
            "asset": asset,
            "in_language": in_language(request),
            "events": f"/events{query_of(**asked)}",
            "number": number,
            "languages": LANGUAGES,
            "version": __version__,
            "has_curves": False,
            "peek_problem": None,
            "folder": str(self.studies.folder),
        }
        return HTMLResponse(self._render(template, request, {**frame, **values}), status_code=status)

    def _render(self, template: str, request: Request, values: dict[str, Any]) -> str:
        language = language_of(request)
        t = phrases(language)
        return self._environment.get_template(template).render(
            t=t,
            language=language,
            link=links_of(request, prefix=""),
            duration_in_words=functools.partial(duration_in_words, t),
            **values,
        )


def _order(of: Summary | None) -> tuple[int, float, str]:
    """Studies at work first, then the newest; those that are not read yet last."""
    if of is None:
        return 2, 0.0, ""
    return (0 if of.is_at_work else 1), -(of.totals.newest_time or 0.0), of.name
