"""Learned scalars over seeds: what is counted first, before the single numbers."""

import re

import pytest

import made_files
import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages
from addnorm.reporting.sections.scalars import ScalarsSection, scalar_rows
from addnorm.reporting.sections.scalars.record import has_families
from addnorm.reporting.view import View
from addnorm.store import write_json
from addnorm.words import phrases


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_counts_over_seeds_before_the_numbers(tmp_path, language):
    study = made_study.finished(tmp_path / "study")
    names = tuple(f"residual.alpha[{place}]" for place in range(3))
    for run in study.runs():
        made_files.record_scalars(run, names)
    runs = [
        {
            "variant": run.spec["variant"],
            "scalars": [],
            "directions": [{"parameters": ["residual.alpha[0]", "residual.alpha[1]"], "coefficients": [1.0, -1.0]}],
        }
        for run in study.runs()
    ]
    write_json(study.path / "explain.json", {"time": 1.5e9, "runs": runs})
    view = View(page="scalars", language=language, link=lambda page, **query: f"/{page}", variant="base")
    html = Pages().section("scalars", Reader(study.path).look(), view)
    said = re.search(r'<p class="over-seeds">([^<]+)</p>', html)
    assert said is not None
    assert html.index("over-seeds") < html.index("<table")
    if language == "en":
        assert said[1].startswith("3 numbers. Different over 3 seeds from what weight decay alone would have left: 3 (")
        assert said[1].endswith(
            "Redundant directions, left out of these counts: 1, so 2 are free; the numbers in them say nothing one by one."
        )
    else:
        assert "冗余方向 1 个（不计入以上数目），因此自由的为 2 个" in said[1]


def test_a_verdict_over_seeds_stands_before_those_of_single_seeds(tmp_path):
    study = made_study.finished(tmp_path / "study")
    for run in study.runs():
        made_files.record_scalars(run, ("scores.log_a.1[0, 2]",))
    content = made_files.verdicts("learned", "learned", "decayed")
    over = [{"variant": "v4m5", "entry": "scores.log_a.1[0, 2]", "verdict": "open"}]
    write_json(study.path / "explain.json", content | {"spread": over})
    view = View(page="scalars", language="en", link=lambda page, **query: f"/{page}", variant="v4m5")
    html = Pages().section("scalars", Reader(study.path).look(), view)
    (cell,) = re.findall(r"<td>(open over seeds.*?)</td>", html)
    assert re.sub(r"<[^>]+>", "", cell) == "open over seeds (learned ×2, decayed)"
    assert html.count('class="icon told-open"') == 1, "beside the chart; in it, a row of them would look like a line"
    assert "told-learned" not in html


@pytest.mark.parametrize("language", ["en", "zh"])
def test_of_a_large_parameter_some_numbers_are_shown_and_it_says_so(tmp_path, language):
    study = made_study.finished(tmp_path / "study")
    for run in study.runs():
        made_files.record_scalars(run, tuple(f"position.table[{place}]" for place in range(700)))
    snapshot = Reader(study.path).look()
    view = View(page="scalars", language=language, link=lambda page, **query: f"/{page}", variant="base")
    html = Pages().section("scalars", snapshot, view)
    assert html.count('<tr><th scope="row">') == 234, "every third"
    assert {"en": "234 of 700 numbers", "zh": "700 个数中的 234 个"}[language] in html
    assert html.index("700") < html.index("<table"), "counts over seeds are of all"
    rows = scalar_rows(snapshot, phrases(language))
    assert len(rows) == 700 * len(snapshot.variants), "the files have all"
    (drawn,) = [figure for figure in ScalarsSection.figures if figure.name == "scalars"]
    assert len(drawn.table(rows, phrases(language)).body) == 234 * len(snapshot.variants)
    assert has_families(snapshot, ["base"])
    assert not has_families(snapshot, [])
