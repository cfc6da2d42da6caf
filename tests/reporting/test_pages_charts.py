"""Every chart, on the live page and in the report: its numbers stand in a table, and its lines differ without colour."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

import made_files
import made_study
from addnorm.reporting.drawing.line_styles import dash, distinct, shape
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages
from addnorm.reporting.report import Written, write_report
from addnorm.reporting.sections import pages as page_names
from addnorm.reporting.view import LogWindow, View
from addnorm.words import LANGUAGES


@dataclass
class Charts(HTMLParser):
    """Pictures that say something, where each says its numbers are, and the numbers in every element with an id."""

    charts: list[tuple[str, str | None]] = field(default_factory=list)
    """What it is called, and the id that it points to."""
    ids: list[str] = field(default_factory=list)
    cells: dict[str, list[str]] = field(default_factory=dict)
    """Texts of the table cells within each id."""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name = values.get("id")
        if name is not None:
            self.ids.append(name)
        is_inside = any(kind == "svg" for kind, _ in self._open)
        # A bar of progress says its one number in its name.
        if (tag == "img" or (tag == "svg" and not is_inside and not hidden(values))) and values.get(
            "class"
        ) != "progress":
            said = values.get("aria-label") or values.get("aria-labelledby") or values.get("alt") or ""
            self.charts.append((said, values.get("aria-details")))
        if tag not in ("img", "br", "meta", "link", "input", "hr"):
            self._open.append((tag, name))
        if tag in ("td", "th"):
            for _, inside in self._open:
                if inside is not None:
                    self.cells.setdefault(inside, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and any(kind == tag for kind, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        if any(kind in ("td", "th") for kind, _ in self._open):
            for _, inside in self._open:
                if inside in self.cells:
                    self.cells[inside][-1] += data

    @property
    def without_table(self) -> list[str]:
        return [
            said
            for said, table in self.charts
            if not said or table is None or not any(re.search(r"\d", cell) for cell in self.cells.get(table, ()))
        ]


def hidden(values: dict[str, str | None]) -> bool:
    return values.get("aria-hidden") == "true"


def read(html: str) -> Charts:
    found = Charts()
    found.feed(html)
    return found


def pages(folder: Path, language: str, *, is_live: bool = True) -> Iterator[tuple[str, str]]:
    snapshot, site = Reader(folder).look(), Pages()
    for name, names in page_names().items():
        variants = {"model": snapshot.variants, "checkpoint": snapshot.checkpoints}.get(name, (None,))
        for variant in variants:
            view = View(
                page=name,
                language=language,
                link=lambda page, **query: f"/{page}",
                variant=variant,
                log=LogWindow(run=snapshot.runs[0].run),
                is_live=is_live,
            )
            sections = [site.section(section, snapshot, view) for section in names]
            yield f"{name} {variant or ''}", "".join(sections)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = made_files.everything(tmp_path_factory.mktemp("charts") / "study").path
    made_files.checkpoint(path, "mine")
    return path


@pytest.fixture(scope="module")
def english(folder: Path) -> dict[str, str]:
    """Every page by its name."""
    return dict(pages(folder, "en"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_chart_of_every_page_has_its_table(folder: Path, english: dict[str, str], language: str) -> None:
    charts = 0
    for name, html in english.items() if language == "en" else pages(folder, language):
        found = read(html)
        assert found.without_table == [], name
        assert len(set(found.ids)) == len(found.ids), name
        charts += len(found.charts)
    # ladder twice, curves on two kinds of pages, scalars on two, two panels of lengths, thirteen of insight and five of depth
    # per model, two terms; thirteen of all checkpoints, and of one with three of depth
    assert charts == 2 + (1 + 3) + (1 + 1) + 2 + 3 * (13 + 5) + 2 + 13 + (13 + 3)


def test_a_model_without_learned_scalars_shows_no_section_of_them(english: dict[str, str]) -> None:
    empty = [name for name, html in english.items() if '<section data-live="scalars" hidden></section>' in html]
    assert empty == ["model base", "model v2m1"]
    assert 'id="scalars-title"' not in english["model base"]
    assert 'id="scalars-title"' in english["model v4m5"]


def test_a_study_without_learned_scalars_says_so_once(tmp_path: Path) -> None:
    html = dict(pages(made_study.finished(tmp_path / "study").path, "en"))["scalars "]
    assert "No learned scalars are recorded" in html
    assert "decay only" not in html
    assert "addnorm explain" not in html


@pytest.fixture(scope="module")
def reports(folder: Path, blank_pictures_in_module: None) -> dict[str, Written]:
    """The study's report by language."""
    snapshot = Reader(folder).look()
    return {
        language: write_report(snapshot, folder.parent / language / "report.html", language) for language in LANGUAGES
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_chart_of_the_report_has_its_table(reports: dict[str, Written], language: str) -> None:
    written = reports[language]
    assert written.left_out == ()
    found = read(written.html.read_text(encoding="utf-8"))
    assert found.without_table == []
    assert len(set(found.ids)) == len(found.ids)
    assert sum(said != "" for said, _ in found.charts) == 21, "each figure once, none of the pages' charts"


def test_the_walk_sees_a_chart_without_a_table() -> None:
    table = '<div id="a"><table><tr><td>1</td></tr></table></div><p id="b">1</p>'
    for chart, wanted in (
        ('<svg role="img" aria-label="x"></svg>', ["x"]),
        ('<svg role="img" aria-label="x" aria-details="b"></svg>', ["x"]),
        ('<svg role="img" aria-label="x" aria-details="a"></svg>', []),
        ('<svg role="img" aria-details="a"></svg>', [""]),
        ('<svg aria-hidden="true"><svg></svg></svg>', []),
        ('<img alt="x">', ["x"]),
    ):
        assert read(chart + table).without_table == wanted


def test_a_terms_curve_and_its_table_say_the_same(english: dict[str, str]) -> None:
    html = english["model base"]
    cells = read(html).cells["terms-1"]
    assert cells[1:5] == ["qᵀRk", "aᵀRk", "qᵀRb", "aᵀRb"]
    # heads at levels 0 and 1 rise by two
    assert cells[5:] == ["0", *["0.500"] * 4, "8", *["2.500"] * 4]


def test_a_figures_table_holds_what_was_drawn(folder: Path, reports: dict[str, Written]) -> None:
    html = reports["en"].html.read_text(encoding="utf-8")
    cells = read(html).cells
    assert cells["figure-extrapolation"][5:10] == ["base", "16", "2.0000", "[1.7500, 2.2500]", "40.00 %"]
    assert "0–31 / 32" in cells["figure-extrapolation"]
    assert cells["figure-gradient_norm"][4:8] == ["base", "0", "0.5", "0.5"]
    assert cells["figure-score_terms"][8:16] == ["base-s0", "0", "0", *["0.500"] * 5]
    ranking = Reader(folder).look().ranking
    assert ranking is not None
    best = ranking.variants[0]
    assert cells["figure-ranking"][6] == best.variant
    assert cells["figure-ranking"][10] == f"{best.mean:.4f}"


def test_lines_differ_without_their_colour() -> None:
    assert len({(dash(style), shape(style)) for style in range(20)}) == 20
    assert len({(dash(style), style % 10) for style in range(40)}) == 40
    assert all(dash(style) != dash(style + 1) for style in range(200) if style % 20 != 19)


def test_lines_that_are_drawn_together_differ_in_a_study_of_any_size() -> None:
    for places in ([4, 54, 104, 154], list(range(0, 400, 10)), list(range(100, 140))):
        assert len(set(distinct(places).values())) == len(places)
    assert distinct(list(range(40))) == {place: (place % 10, dash(place)) for place in range(40)}, "each its own"
    by_colour = distinct([4, 54, 104, 154, 7], by_colour=True)
    assert len({colour for colour, _ in by_colour.values()}) == 5
    assert len(distinct(list(range(60)))) == 60, "beyond forty lines, looks are used again"


def test_the_style_sheet_and_the_script_know_every_pattern() -> None:
    static = Path(made_files.__file__).parents[1] / "src" / "addnorm" / "reporting" / "static"
    sheet = dict(re.findall(r"\.d(\d) \{ stroke-dasharray: ([\d. ]+); \}", (static / "page.css").read_text()))
    script = re.search(r"const dash = .*?\[(\[\].*?)\]\[pattern\]", (static / "curves.js").read_text())
    assert script is not None
    drawn = [text.replace(",", "") for text in re.findall(r"\[([\d., ]*)\]", script[1])]
    assert drawn == ["", *(sheet[str(pattern)] for pattern in range(1, len(sheet) + 1))]
    assert {dash(style) for style in range(100)} == set(range(len(drawn)))


def test_points_of_lengths_have_shapes(english: dict[str, str]) -> None:
    html = english["lengths "]
    shapes = re.findall(r'<path class="seed s(\d) d\d" d="(M[^"]+)"', html)
    assert len({path for _, path in shapes}) == len({style for style, _ in shapes}) == 2
