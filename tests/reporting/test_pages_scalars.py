"""Learned scalars over seeds: what is counted first, before the single numbers."""

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
from safetensors.numpy import save_file

import made_files
import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages
from addnorm.reporting.sections.scalars import ScalarsSection, scalar_rows
from addnorm.reporting.sections.scalars.over_seeds import over_seeds
from addnorm.reporting.sections.scalars.record import families, has_families
from addnorm.reporting.view import View
from addnorm.statistics.departures import by_family, departures
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


def record(run, init: list[float], value: list[float]) -> None:
    zeros = np.zeros(len(init))
    arrays = dict.fromkeys(("decay", "log_kept", "mean", "mean_square", "mean_absolute"), zeros)
    arrays |= {"init": np.array(init), "value": np.array(value), "gradient": np.subtract(value, init)}
    names = json.dumps([f"residual.w[{place}]" for place in range(len(init))])
    save_file({**arrays, "steps": np.array(100)}, run.path / "scalars.safetensors", metadata={"names": names})


@pytest.mark.parametrize("moved", [(0.0, 0.0, 0.0), (0.2, 0.19, 0.21), (0.2, -0.2, 0.1)])
def test_seeds_that_start_apart_are_each_compared_with_their_own_start(tmp_path, moved):
    """As `addnorm explain` does: against the mean start, an untouched draw would lie on both sides of it."""
    study = made_study.finished(tmp_path / "study")
    runs = [run for run in study.runs() if run.spec["variant"] == "base"]
    starts = np.array([[0.5, 2.0], [-0.3, 1.0], [0.1, -1.0]])
    ends = starts + np.array(moved)[:, None]
    for run, start, end in zip(runs, starts, ends, strict=True):
        record(run, start.tolist(), end.tolist())
    (family,) = families(Reader(study.path).look(), ["base"])
    names = ["residual.w"] * 2
    (expected,) = by_family(departures(ends, starts, families=names, steps=100), names, [])
    (counted,) = over_seeds([family])
    assert asdict(counted) == asdict(expected)
    assert [entry.init for entry in family.entries] == pytest.approx(starts.mean(0))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_seed_whose_record_is_damaged_is_not_counted_and_is_named(tmp_path, language):
    study = made_study.finished(tmp_path / "study")
    runs = [run for run in study.runs() if run.spec["variant"] == "base"]
    for run in runs:
        record(run, [1.0], [1.2])
    path = runs[-1].path / "scalars.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    view = View(page="scalars", language=language, link=lambda page, **query: f"/{page}", variant="base")
    html = Pages().section("scalars", Reader(study.path).look(), view)
    seeds = [run.spec["seed"] for run in runs]
    (caption,) = re.findall(r"<figcaption>(.*?)</figcaption>", html)
    shown = ", ".join(map(str, seeds[:-1]))
    assert shown in caption
    assert f"{shown}, " not in caption
    expected = (
        f"The record of seed {seeds[-1]} cannot be read" if language == "en" else f"种子 {seeds[-1]} 的记录无法读取"
    )
    assert expected in caption
