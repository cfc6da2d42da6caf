"""A section is added by its files, a measure by an entry: pages, live updates, the report and its files know it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import made_files
from addnorm.reporting import sections as sections_package
from addnorm.reporting.changes import changed_sections, shown_on
from addnorm.reporting.measures import LayerMeasure, measures
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages, shows_results
from addnorm.reporting.report import write_report
from addnorm.reporting.sections import pages, sections
from addnorm.reporting.sections.insight import table
from addnorm.reporting.view import View
from addnorm.words import phrases

SECTION = '''
"""Notes that somebody keeps beside a study."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View


class Notebook(Section):
    """The notes."""

    order = 25
    pages = ("overview", "notes")
    study_files = ("notebook.json",)
    words = {"notebook.title": "Notebook", "page.notes": "Notes"}

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"text": content_of(snapshot, "notebook.json").get("text", "nothing")}
'''
TEMPLATE = """<section data-live="notebook"><h2>{{ t("notebook.title") }}</h2><p>{{ text }}</p></section>
"""
MEASURE = LayerMeasure(
    name="largest_weight",
    key="largest_weight",
    caption="Largest attention weight of each layer.",
    panel_title="Largest attention weight",
    axis_label="largest weight",
    columns={"largest_weight": "largest"},
    legend="largest: the largest weight of a row of attention",
)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A section in a folder of its own, which joins the package as a file in it would, and a measure."""
    folder = tmp_path / "sections"
    (folder / "templates").mkdir(parents=True)
    (folder / "notebook.py").write_text(SECTION)
    (folder / "templates" / "notebook.html").write_text(TEMPLATE)
    monkeypatch.setattr(sections_package, "__path__", [*sections_package.__path__, str(folder)])
    monkeypatch.setattr("addnorm.reporting.measures._MEASURES", (*measures().values(), MEASURE))
    return


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Every run was inspected, with the added measure among the results."""
    folder = made_files.everything(tmp_path / "study")
    for run in folder.runs():
        path = run.path / "insight.json"
        content = json.loads(path.read_text())
        for moment, level in (("start", 0.25), ("end", 0.75)):
            for row in content[moment]["layers"]:
                row["largest_weight"] = level
        path.write_text(json.dumps(content))
    return folder.path


def view(page: str, language: str = "en", variant: str | None = None) -> View:
    return View(page=page, language=language, link=lambda page, **query: f"/{page}", variant=variant)


@pytest.mark.usefixtures("added")
def test_a_section_is_one_file_and_a_template(study: Path, tmp_path: Path) -> None:
    assert [name for name in sections() if name in ("totals", "notebook", "ladder")] == ["totals", "notebook", "ladder"]
    assert pages("study")["overview"] == ("answer", "notes", "totals", "notebook", "ladder", "cards", "tuning")
    assert pages("study")["notes"] == ("notebook",)
    reader = Reader(study)
    before = reader.look()
    assert "<p>nothing</p>" in Pages().section("notebook", before, view("overview"))
    (study / "notebook.json").write_text('{"text": "<b>bold</b>"}')
    now = reader.look()
    assert changed_sections(before, now) == {"notebook"}, "a live page is told of the new file"
    assert shown_on("overview", {"notebook", "card-1", "cost"}) == ["card-1", "notebook"]
    assert shown_on("cost", {"notebook", "card-1", "cost"}) == ["cost"]
    for language in ("en", "zh"):
        page = Pages().page(
            now, view("notes", language), asset=str, in_language=lambda code: code, events="/events", number=1
        )
        assert "<h2>Notebook</h2><p>&lt;b&gt;bold&lt;/b&gt;</p>" in page, "in English where there is no translation"
        assert '<a href="/notes" aria-current="page">Notes</a>' in page
    assert not shows_results("notes", now)
    assert "</span> Notebook</h2>" in Pages().one_file(now, "zh"), "with a number, and in the contents"
    assert "</span> Notebook</a>" in Pages().one_file(now, "zh")


@pytest.mark.usefixtures("added", "blank_pictures")
def test_a_measure_is_one_entry(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(measures())[-2:] == ["early_exit", "largest_weight"]
    drawn = {name: measure for name, measure in measures().items() if name in ("largest_weight", "one_hot")}
    snapshot = Reader(study).look()
    text = Pages().section("insight", snapshot, view("model", "zh", snapshot.variants[0]))
    assert "<h3>Largest attention weight</h3>" in text
    assert f"<h3>{phrases('zh')('measure.one_hot.panel_title')}</h3>" in text
    assert table.columns()["largest_weight"] == "largest"
    assert "largest: the largest weight of a row of attention." in table.legend().replace("\n", " ")
    # Fewer figures to draw; what is derived from the measures is the same for all of them.
    monkeypatch.setattr("addnorm.reporting.sections.insight.measures", lambda: drawn)
    written = write_report(snapshot, tmp_path / "report" / "r.html", "en")
    names = {path.name for path in written.files}
    assert {"largest_weight.svg", "largest_weight.png", "one_hot.svg"} <= names
    assert "Largest attention weight of each layer." in written.html.read_text()
    assert "largest_weight,0.75" in (tmp_path / "report" / "insight.csv").read_text()
    assert "% largest by layer." in (tmp_path / "report" / "insight-largest_weight.tex").read_text()


def test_the_added_ones_are_gone_again() -> None:
    assert "notebook" not in sections()
    assert "largest_weight" not in measures()
