"""Sections to HTML: single sections for live updates, whole pages, and the report in one file."""

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from addnorm.references import REFERENCES
from addnorm.reporting.drawing.line_styles import dash, shape
from addnorm.reporting.figure import ReportFiles
from addnorm.reporting.formats import numbers
from addnorm.reporting.formats.formula import prose
from addnorm.reporting.formats.measured import RankingFormats, tier_name
from addnorm.reporting.section import Section
from addnorm.reporting.sections import front_of, pages, pages_of, sections, template_folders
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import CHECKPOINT_PAGE, LOG_PAGE, MODEL_PAGE, OF_ONE, UNLISTED, View
from addnorm.version import __version__
from addnorm.words import LANGUAGES, Phrases, phrases, point_name, translated

HERE = Path(__file__).parent
STATIC = HERE / "static"
TEMPLATES = HERE / "templates"


class Pages:
    """Renders sections and whole pages. One object per study: its sections keep what makes the next rendering cheaper."""

    def __init__(self) -> None:
        self._environment = environment((TEMPLATES, *template_folders()))
        self._sections: Mapping[str, Section] = {name: section() for name, section in sections().items()}
        self._words = {key: text for section in self._sections.values() for key, text in section.words.items()}

    def warm(self, snapshot: Snapshot) -> None:
        """Prepare what the first page would have to wait for: small curves and compiled templates."""
        front = front_of(snapshot)
        view = View(page=front, link=_anchor)
        for name in pages(snapshot.source)[front]:
            self.section(name, snapshot, view)
        for template in self._environment.list_templates():
            self._environment.get_template(template)

    def section(self, name: str, snapshot: Snapshot, view: View) -> Markup:
        """One section's HTML.

        Args:
            name: of the section, or `PART-N` for the part of one model.
            snapshot: the study.
            view: who looks at it.
        """
        if name in self._sections:
            template, values = f"{name}.html", self._sections[name].values(snapshot, view)
        else:
            part, _, place = name.rpartition("-")
            (section,) = (section for section in self._sections.values() if section.part == part)
            template, values = f"_{part}.html", section.part_values(snapshot, view, int(place))
        return Markup(self._render(template, snapshot, view, values))

    def page(self, snapshot: Snapshot, view: View, **chrome: Any) -> str:
        """A whole page.

        Args:
            snapshot: the study.
            view: which page, and who looks at it.
            chrome: values for the page's frame: `asset`, `in_language`, `events`, `number`, and `home`, the address of the page
                of all studies, if there is one.
        """
        content = [self.section(name, snapshot, view) for name in pages(snapshot.source)[view.page]]
        values = {**_chrome(snapshot, view), "home": None, **chrome, "sections": content}
        return self._render("page.html", snapshot, view, values)

    def problem(self, snapshot: Snapshot, view: View, problem: str, **chrome: Any) -> str:
        """A page that says what is wrong with its address."""
        return self._render("problem.html", snapshot, view, {**_chrome(snapshot, view), **chrome, "problem": problem})

    def one_file(self, snapshot: Snapshot, language: str, *, report: ReportFiles | None = None) -> str:
        """Everything about a study in one HTML file that needs no server and no script.

        Args:
            snapshot: the study.
            language: of the texts.
            report: the files in its folder; without them, the sections at the report's end are left out.
        """
        # A report is the same sections with another view: no server (`is_live`), links within the document, and the
        # figures of the report in place of the page's own drawings. Nothing here is a second rendering of a number,
        # so that page and report cannot disagree.
        if report is not None:
            report = self._placed(report)
        # A table knows nothing of its models but their runs, which stand in one section: no part for each model.
        is_table = snapshot.source == "table"
        link = _anchor_of_table if is_table else _anchor
        view = View(page=front_of(snapshot), language=language, link=link, is_live=False, report=report)
        opening = self._in_report("opening", snapshot, view)
        content = self._in_report("study", snapshot, view)
        if report is not None:
            content += self._in_report("end", snapshot, view)
        numbered, contents = _numbered(content)
        models = []
        for model in () if is_table else snapshot.models:
            page = MODEL_PAGE if model in snapshot.variants else CHECKPOINT_PAGE
            parts = self._in_report("model", snapshot, replace(view, page=page, variant=model))
            models.append((model, Markup("").join(parts)))
        # The style sheet is a file of this package and holds no text of a study, so it needs no escaping.
        style = Markup((STATIC / "page.css").read_text(encoding="utf-8"))
        values = {**_chrome(snapshot, view), "opening": opening, "sections": numbered, "contents": contents}
        return self._render("one_file.html", snapshot, view, {**values, "models": models, "style": style})

    def _placed(self, report: ReportFiles) -> ReportFiles:
        """The report's figures in the order of their places: with their sections, or in the section of figures."""
        homes = {
            figure.name: name if section.in_report == "study" else "figures"
            for name, section in self._sections.items()
            for figure in section.figures
        }
        order = list(self._sections)
        figures = sorted(report.figures, key=lambda drawn: order.index(homes[drawn.figure.name]))
        return replace(report, figures=tuple(figures), sections=homes)

    def _in_report(self, place: str, snapshot: Snapshot, view: View) -> list[Markup]:
        """The sections of one place, each followed by its figures; those without a heading have nothing to show."""
        html = []
        for name, section in self._sections.items():
            if section.in_report != place or snapshot.source not in section.sources:
                continue
            if place == "model" and view.page not in section.pages:
                continue
            if not section.is_measured(snapshot, view.variant):
                continue
            shown = self.section(name, snapshot, view)
            figures = self._figures(name, snapshot, view)
            if _HEADING.search(shown) and (figures or name != "figures"):
                html.append(shown if name == "figures" else shown + figures)
        return html

    def _figures(self, name: str, snapshot: Snapshot, view: View) -> Markup:
        drawn = [] if view.report is None else view.report.shown_in(name, phrases(view.language))
        return Markup(self._render("_drawn.html", snapshot, view, {"figures": drawn})) if drawn else Markup("")

    def _render(self, template: str, snapshot: Snapshot, view: View, values: Mapping[str, Any]) -> str:
        t = phrases(view.language).extended(self._words)
        return self._environment.get_template(template).render(
            t=t,
            language=view.language,
            own=_own(snapshot, view),
            pictures=view.report is None,
            is_static=not view.is_live,
            link=view.link,
            folder=str(snapshot.path),
            shown_of=snapshot.source,
            titles=snapshot.titles,
            wide=snapshot.wide_names,
            forms=RankingFormats.of_measure(snapshot.measure, t),
            duration_in_words=functools.partial(duration_in_words, t),
            in_words=functools.partial(translated, t=t),
            **values,
        )


_HEADING = re.compile(r"<h[12](?P<attributes>[^>]*)>(?P<title>.*?)</h[12]>", re.S)
_ID = re.compile(r'\bid="([^"]+)"')


def _numbered(sections: Sequence[Markup]) -> tuple[list[Markup], list[tuple[int, str, str]]]:
    """Sections with numbers in their headings, and their contents: number, address, title."""
    # Sections do not know their number: it depends on which sections the report has. So headings are found again in
    # the HTML. This is safe because sections are this package's own templates, in which names of a study are escaped:
    # no `<h2>` can come from a study.
    numbered, contents = [], []
    for number, section in enumerate(sections, start=1):
        heading = _HEADING.search(section)
        assert heading is not None  # `_in_report` leaves out sections without one
        known = _ID.search(heading["attributes"])
        address = f"section-{number}" if known is None else known[1]
        mark = Markup('{}<h2{} id="{}"><span class="section-number">{}</span> {}</h2>{}').format(
            Markup(section[: heading.start()]),
            Markup(_ID.sub("", heading["attributes"]).rstrip()),
            address,
            number,
            Markup(heading["title"]),
            Markup(section[heading.end() :]),
        )
        numbered.append(mark)
        contents.append((number, address, Markup(heading["title"]).striptags()))
    return numbered, contents


def shows_results(page: str, snapshot: Snapshot) -> bool:
    """True if seeing the page now is a look at the study's results."""
    shown = [sections()[name] for name in pages(snapshot.source)[page]]
    return any(section.shows_results and section().is_measured(snapshot, None) for section in shown)


@functools.cache
def asset_hash(name: str) -> str:
    """Start of a static file's SHA-256. An address with it can be cached without limit."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def query_of(**values: Any) -> str:
    """`?a=b&c=d` of the values that are not None; empty without any."""
    given = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _chrome(snapshot: Snapshot, view: View) -> dict[str, Any]:
    return {
        "page": view.page,
        "pages": [name for name in pages_of(snapshot) if name not in UNLISTED],
        "front": front_of(snapshot),
        "shown": view.log.run if view.page == LOG_PAGE else view.variant if view.page in OF_ONE else None,
        "has_curves": "curves" in pages(snapshot.source)[view.page],
        "study": snapshot.study,
        "plan_hash": str(snapshot.plan["plan_hash"]) if snapshot.is_study else "",
        "languages": LANGUAGES,
        "version": __version__,
        "peek_problem": view.peek_problem,
    }


def _own(snapshot: Snapshot, view: View) -> str:
    """Prefix of the ids in a model's sections, which a report shows for several models in one document."""
    is_one_of_many = not view.is_live and view.variant in snapshot.models
    return f"m{snapshot.models.index(view.variant)}-" if is_one_of_many and view.variant is not None else ""


def _anchor(page: str, **query: Any) -> str:
    return f"#model-{query['variant']}" if page in OF_ONE else f"#{page}-title"


def _anchor_of_table(page: str, **query: Any) -> str:
    return "#values-title" if page in OF_ONE else _anchor(page, **query)


def duration_in_words(words: Phrases, seconds: float | None) -> str:
    """A duration in words."""
    key, values = numbers.duration(seconds)
    return words(key, **values)


# Markup.join escapes each part, and `<wbr>` alone is taken as it is. Formatting the pieces into a plain string first
# would let a variant named `<script>` through.
def _breakable(name: str) -> Markup:
    """A name of a grid as people read it (`point_name`), which may be broken after each setting."""
    return Markup(" ·<wbr> ").join(name.split(", "))


@functools.cache
def environment(folders: tuple[Path, ...]) -> Environment:
    """The templates of these folders, which are compiled once for all objects that show them."""
    # StrictUndefined: a value that a section forgot is an error in tests, not an empty place on a page. Autoescape is
    # on for every template, whatever its name; `Markup` is written in code only, and each place where it is has a
    # reason.
    made = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("fixed", "signed", "percent", "quantity", "times", "size", "moment", "iso"):
        made.globals[name] = getattr(numbers, name)
    made.globals |= {
        "dash": dash,
        "shape": shape,
        "references": REFERENCES,
        "point_name": point_name,
        "tier_name": tier_name,
    }
    made.globals["is_static"] = False  # of a page that a server gives
    made.filters |= {"prose": prose, "breakable": _breakable}
    return made
