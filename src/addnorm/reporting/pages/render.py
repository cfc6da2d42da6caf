"""View models and templates to HTML. The same sections make the live pages and the one-file report."""

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from addnorm.references import REFERENCES
from addnorm.reporting.pages import numbers
from addnorm.reporting.pages.audits import audits
from addnorm.reporting.pages.cards import Card, cards, furthest, totals
from addnorm.reporting.pages.chart import chart, spark
from addnorm.reporting.pages.cost import costs
from addnorm.reporting.pages.curves import METRICS, Selection, curves, rows
from addnorm.reporting.pages.explained import explained
from addnorm.reporting.pages.formula import prose
from addnorm.reporting.pages.insight import audited, insight
from addnorm.reporting.pages.ladder import ladder
from addnorm.reporting.pages.lengths import lengths
from addnorm.reporting.pages.lines import dash, shape
from addnorm.reporting.pages.model import model
from addnorm.reporting.pages.record import Proofs, failures, plan
from addnorm.reporting.pages.scalars import Family, families
from addnorm.reporting.pages.snapshot import Snapshot
from addnorm.reporting.pages.terms import terms
from addnorm.reporting.pages.verdicts import verdicts
from addnorm.store import Damaged, Index
from addnorm.words import LANGUAGES, Phrases, phrases

HERE = Path(__file__).parent
STATIC = HERE / "static"

PAGES: Mapping[str, tuple[str, ...]] = {
    "overview": ("totals", "cards", "ladder"),
    "ranking": ("ladder", "verdicts", "values"),
    "curves": ("curves",),
    "scalars": ("scalars",),
    "lengths": ("lengths",),
    "cost": ("cost",),
    "record": ("failures", "proofs", "plan"),
    "model": ("runs", "model", "curves", "scalars", "insight", "terms"),
}
"""Sections of each page. `model` is not in the navigation: it is reached by a model's name."""
SHOW_RESULTS = frozenset({"overview", "ranking", "lengths"})
"""Pages that can show means or verdicts over seeds; see `shows_results`."""
_MOST_FAMILIES = 12
_MOST_ICONS = 40
"""In one chart; with more they would touch each other, and the table says each number's verdict anyway."""
_SPARK_POINTS = 48


@dataclass(frozen=True, kw_only=True)
class View:
    """How a visitor sees a page."""

    page: str
    language: str = "en"
    link: Callable[..., str]
    """Address of a page by name, with its query."""
    variant: str | None = None
    """The model whose page this is, or whose scalars alone are asked for."""
    selection: Selection = field(default_factory=Selection)
    is_live: bool = True
    """Whether curves can be asked for again; a report's cannot."""
    look_problem: str | None = None


class Pages:
    """Renders sections and whole pages. One object per study; its caches make repeated pages cheap."""

    def __init__(self) -> None:
        self._environment = _environment()
        self._proofs = Proofs()
        self._sparks: dict[tuple[str, int], str] = {}

    def warm(self, snapshot: Snapshot) -> None:
        """Do ahead what the first page would have to wait for: every model's small line, and the templates' compilation."""
        view = View(page="overview", link=_anchor)
        for name in PAGES["overview"]:
            self.section(name, snapshot, view)
        for template in self._environment.list_templates():
            self._environment.get_template(template)

    def section(self, name: str, snapshot: Snapshot, view: View) -> Markup:
        """One section's HTML.

        Args:
            name: one of the names in `PAGES`, or `card-N` for one model's card.
        """
        if name.startswith("card-"):
            place = int(name.removeprefix("card-"))
            values: dict[str, Any] = {"card": self._cards(snapshot, place)[0]}
            template = "_card.html"
        else:
            values, template = getattr(self, f"_{name}_values")(snapshot, view), f"_{name}.html"
        return Markup(self._render(template, snapshot, view, values))

    def page(self, snapshot: Snapshot, view: View, **chrome: Any) -> str:
        """A whole page.

        Args:
            chrome: what the page's frame needs: `asset`, `in_language`, `events`, `number`.
        """
        sections = [self.section(name, snapshot, view) for name in PAGES[view.page]]
        values = {**_chrome(snapshot, view), **chrome, "sections": sections}
        return self._render("page.html", snapshot, view, values)

    def problem(self, snapshot: Snapshot, view: View, problem: str, **chrome: Any) -> str:
        """A page that says what is wrong with its address."""
        return self._render("problem.html", snapshot, view, {**_chrome(snapshot, view), **chrome, "problem": problem})

    def one_file(self, snapshot: Snapshot, language: str, *, more: Mapping[str, Markup] | None = None) -> str:
        """Everything about a study in one HTML file that needs no server and no script.

        Args:
            more: further sections by title, put at the end.
        """
        view = View(page="overview", language=language, link=_anchor, is_live=False)
        names = (
            "totals",
            "cards",
            "ladder",
            "verdicts",
            "values",
            "curves",
            "scalars",
            *(("lengths",) if lengths(snapshot) is not None else ()),
            "cost",
            "failures",
            "proofs",
            "plan",
        )
        sections = [self.section(name, snapshot, view) for name in names]
        for variant in snapshot.variants:
            own = replace(view, page="model", variant=variant)
            names = ("runs", "model", "insight", *(("terms",) if terms(snapshot, variant) is not None else ()))
            parts = Markup("").join(self.section(name, snapshot, own) for name in names)
            sections.append(
                Markup('<article class="one-model" id="model-{}"><h1>{}</h1>{}</article>').format(
                    variant, variant, parts
                )
            )
        for title, content in (more or {}).items():
            sections.append(Markup("<section><h2>{}</h2>{}</section>").format(title, content))
        # A style sheet of ours alone, and no text of a study's: nothing in it can end the element early.
        style = Markup((STATIC / "page.css").read_text(encoding="utf-8"))
        return self._render(
            "one_file.html", snapshot, view, {**_chrome(snapshot, view), "sections": sections, "style": style}
        )

    def part(self, template: str, snapshot: Snapshot, language: str, values: Mapping[str, Any]) -> Markup:
        """A template of `templates/` filled in: what a report has beside the pages' own sections."""
        view = View(page="overview", language=language, link=_anchor, is_live=False)
        return Markup(self._render(template, snapshot, view, values))

    def _render(self, template: str, snapshot: Snapshot, view: View, values: Mapping[str, Any]) -> str:
        words = phrases(view.language)
        return self._environment.get_template(template).render(
            t=words,
            language=view.language,
            own=_own(snapshot, view),
            link=view.link,
            folder=str(snapshot.path),
            said_duration=functools.partial(_said_duration, words),
            **values,
        )

    def _totals_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"totals": totals(snapshot)}

    def _cards_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"cards": self._cards(snapshot)}

    def _ladder_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        ranked = snapshot.ranking is not None and any(row.rank_interval for row in snapshot.ranking.variants)
        return {
            "ladder": ladder(snapshot.ranking) if snapshot.ranking and ranked else None,
            "no_ranking": snapshot.no_ranking,
        }

    def _verdicts_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        ranking = snapshot.ranking
        return {
            "verdicts": verdicts(ranking) if ranking is not None else None,
            # A ranking is made anew when runs end; what the others are doing is known sooner.
            "states": {run.run: run.state for run in snapshot.runs},
            "ranking": ranking,
            "no_ranking": snapshot.no_ranking,
        }

    _values_values = _verdicts_values

    def _curves_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        selection = view.selection if view.variant is None else replace(view.selection, variants=(view.variant,))
        found = curves(snapshot, selection)
        steps, lines = rows(found)
        choices = [(place, name) for place, name in enumerate(snapshot.variants)] if view.variant is None else []
        form_action, _, query = view.link(view.page).partition("?")
        hidden = [tuple(pair.split("=", 1)) for pair in query.split("&") if "=" in pair]
        if view.variant is not None:
            hidden.append(("variant", view.variant))
        return {
            "curves": found,
            "chart": chart(found),
            "curve_steps": steps,
            "curve_rows": lines,
            "metrics": METRICS,
            "choices": choices,
            "source": view.link("curves.json") if view.is_live else None,
            "form_action": form_action,
            "form_hidden": hidden,
        }

    def _scalars_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        names = snapshot.variants if view.variant is None else (view.variant,)
        found: list[Family] = []
        left_out: list[str] = []
        for name in names:
            if len(found) < _MOST_FAMILIES:
                found += families(snapshot, [name])
            else:
                left_out.append(name)
        return {"families": found, "left_out": left_out, "explained": explained(snapshot), "most_icons": _MOST_ICONS}

    def _cost_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"costs": costs(snapshot), "audits": audits(snapshot)}

    def _lengths_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"at": lengths(snapshot)}

    def _terms_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        runs = snapshot.of(view.variant or "")
        return {
            "terms": terms(snapshot, view.variant or ""),
            "example": runs[0].run if runs else "",
        }

    def _failures_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"failures": failures(snapshot)}

    def _proofs_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"proofs": self._proofs(snapshot)}

    def _plan_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"plan": plan(snapshot)}

    def _runs_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"runs": snapshot.of(view.variant or "")}

    def _model_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"model": model(snapshot, view.variant or "", view.language)}

    def _insight_values(self, snapshot: Snapshot, view: View) -> dict[str, Any]:
        return {"insight": insight(snapshot, view.variant or ""), "audited": audited(snapshot, view.variant or "")}

    def _cards(self, snapshot: Snapshot, place: int | None = None) -> list[Card]:
        names = snapshot.variants if place is None else (snapshot.variants[place],)
        made = cards(snapshot, {name: self._spark(snapshot, name) for name in names})
        return made if place is None else [made[place]]

    def _spark(self, snapshot: Snapshot, variant: str) -> str:
        run = furthest(snapshot.of(variant))
        if run is None or run.step == 0:
            return ""
        key = (run.run, run.step)
        if key not in self._sparks:
            try:
                points = Index(snapshot.path).thinned(
                    run.run, "train.loss", first=0, last=run.steps, parts=_SPARK_POINTS
                )
            except Damaged:  # the run is shown as blocked, with this very reason
                points = []
            for old in [known for known in self._sparks if known[0] == run.run]:
                del self._sparks[old]
            self._sparks[key] = spark([step for step, _ in points], [value for _, value in points], run.steps)
        return self._sparks[key]


def shows_results(page: str, snapshot: Snapshot) -> bool:
    """Whether seeing that page now is a look at the study's results."""
    return page in SHOW_RESULTS and (page != "lengths" or lengths(snapshot) is not None)


@functools.cache
def asset_hash(name: str) -> str:
    """Start of a static file's SHA-256: an address that holds it may be kept for ever."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def query_of(**values: Any) -> str:
    """`?a=b&c=d` of the values that are not None; empty without any."""
    given = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _chrome(snapshot: Snapshot, view: View) -> dict[str, Any]:
    return {
        "page": view.page,
        "pages": [name for name in PAGES if name != "model"],
        "variant": view.variant if view.page == "model" else None,
        "study": snapshot.study,
        "plan_hash": str(snapshot.plan["plan_hash"]),
        "languages": LANGUAGES,
        "version": version("addnorm"),
        "look_problem": view.look_problem,
    }


def _own(snapshot: Snapshot, view: View) -> str:
    """What ids of a model's sections begin with: in a report, models stand one below the other."""
    is_one_of_many = not view.is_live and view.variant in snapshot.variants
    return f"m{snapshot.variants.index(view.variant)}-" if is_one_of_many and view.variant is not None else ""


def _anchor(page: str, **query: Any) -> str:
    return f"#model-{query['variant']}" if page == "model" else f"#{page}-title"


def _said_duration(words: Phrases, seconds: float | None) -> str:
    key, values = numbers.duration(seconds)
    return words(key, **values)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("fixed", "signed", "percent", "quantity", "times", "size", "moment", "iso"):
        made.globals[name] = getattr(numbers, name)
    made.globals |= {"dash": dash, "shape": shape, "references": REFERENCES}
    made.filters["prose"] = prose
    return made
