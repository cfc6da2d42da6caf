"""Addresses read into views, and views written as addresses.

A site may lie under a prefix (`/study/first`) of another one; every address that is written begins with it.
"""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from addnorm.reporting.render import query_of
from addnorm.reporting.view import AXES, LOG_PAGE, METRICS, OF_ONE, SMOOTHING, Listing, LogWindow, Selection, View
from addnorm.words import LANGUAGES, preferred

_LISTING = tuple(field.name for field in fields(Listing))


# Everything in an address is a wish, never an error of the server: unknown axes, languages and numbers fall back to
# the default, so that old links keep working. Two things are refused by name: a curve that does not exist (a typing
# error in a script) and a model that the study does not have. Nothing from an address is joined to a path.
def view_of(page: str, request: Request) -> View:
    """The view of a page that an address asks for.

    Raises:
        InputError: it asks for a curve that does not exist.
    """
    query = request.query_params
    shown = query.get("page", page) if page == "overview" else page
    return View(
        page=page,
        language=language_of(request),
        link=links_of(request),
        variant=query.get("variant") if shown in (*OF_ONE, "scalars") else None,
        selection=selection_of(request),
        listing=Listing(**{name: query.get(name, "") for name in _LISTING}),
        log=LogWindow(run=query.get("run", ""), until=_offset(query.get("until")))
        if shown == LOG_PAGE
        else LogWindow(),
    )


def selection_of(request: Request) -> Selection:
    """The curves that an address asks for.

    Raises:
        InputError: there is no such curve.
    """
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


def asked_of(view: View) -> dict[str, Any]:
    """The part of a view that a page's live updates need, as an address writes it."""
    return {
        "page": view.page,
        "lang": view.language,
        "variant": view.variant,
        "run": view.log.run or None,
        "until": view.log.until,
        **{name: value for name, value in vars(view.listing).items() if value},
    }


def language_of(request: Request) -> str:
    """The language that was asked for by name, else the visitor's own."""
    asked = request.query_params.get("lang")
    return asked if asked in LANGUAGES else preferred(request.headers.get("accept-language", ""))


def links_of(request: Request, prefix: str | None = None) -> Callable[..., str]:
    """Addresses of pages, which keep the language if it was asked for by name.

    Args:
        request: of the page that links.
        prefix: of the site that is linked; the request's own if not given.
    """
    asked = request.query_params.get("lang")
    lang = asked if asked in LANGUAGES else None
    root = request.scope.get("root_path", "") if prefix is None else prefix

    def link(page: str, **query: Any) -> str:
        path = "/" if page == "overview" else f"/{page}"
        return f"{root}{path}" + query_of(lang=lang, **query)

    return link


def in_language(request: Request) -> Callable[[str], str]:
    """This page's address in another language."""
    return lambda code: str(request.url.include_query_params(lang=code).replace(scheme="", netloc="")).removeprefix(
        "//"
    )


def address_after_picking(request: Request, models: int) -> str | None:
    """The address of the list without the models that a visitor picked, or with these alone; None if nothing was picked.

    Args:
        request: `pick`, the places of models, and `act`, what is done with them: `hide` or `only`.
        models: number of models of the study.
    """
    act = request.query_params.get("act")
    if act not in ("hide", "only"):
        return None
    picked = {int(text) for text in request.query_params.getlist("pick") if text.isdecimal() and len(text) < 8}
    hidden = set(Listing(hide=request.query_params.get("hide", "")).hidden)
    if picked:
        hidden = hidden | picked if act == "hide" else set(range(models)) - picked
    kept = [(k, v) for k, v in request.query_params.multi_items() if k not in ("act", "pick", "hide") and v]
    asked = [*kept, *([("hide", Listing.of_hidden(hidden).hide)] if hidden else [])]
    return f"{request.url.path}{'?' if asked else ''}{urlencode(asked)}"


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


def _offset(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 16 else None
