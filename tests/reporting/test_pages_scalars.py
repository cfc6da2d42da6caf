"""Learned scalars over seeds: what is counted first, before the single numbers."""

import random
import re

import pytest
from scipy import stats

import made_files
import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages
from addnorm.reporting.sections.scalars.over_seeds import over_seeds
from addnorm.reporting.sections.scalars.record import Entry
from addnorm.reporting.view import View
from addnorm.store import write_json


def entry(*values: float, decay_only: float = 1.0) -> Entry:
    return Entry(
        name="a[0]",
        label="0",
        layer=0,
        init=1.0,
        decay_only=decay_only,
        finals=tuple(enumerate(values)),
        mean=sum(values) / len(values),
        effective=None,
        by_decay=None,
        snr=None,
        x=0.0,
        y_mean=0.0,
        y_init=0.0,
        y_decay=0.0,
        y_finals=(),
    )


def test_what_moved_the_same_way_in_every_seed_is_counted():
    found = over_seeds([entry(2.0, 2.1, 1.9), entry(0.9, 1.1, 1.0), entry(1.0, 1.0, 1.0), entry(0.5, 0.5, 0.5)])
    assert (found.numbers, found.seeds, found.moved, found.mixed) == (4, 3, 2, 1)


def test_two_seeds_are_not_tested():
    found = over_seeds([entry(2.0, 2.1), entry(0.9, 1.1)])
    assert (found.moved, found.mixed) == (None, 1)


def test_noise_alone_is_seldom_called_moved():
    """Holm keeps the chance of one false count or more in a family of twenty below 5 %; 3.3 standard errors above it."""
    noise, trials = random.Random(0), 400
    false = sum(
        bool(over_seeds([entry(*(noise.gauss(1, 1) for _ in range(5))) for _ in range(20)]).moved)
        for _ in range(trials)
    )
    assert false <= stats.binom.ppf(0.9995, trials, 0.05)
    assert false > 0, "the test is not deaf"


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
            "directions": [{"parameters": ["residual.alpha[0]", "residual.alpha[1]"], "coefficients": [1.0, 1.0]}],
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
        assert said[1].startswith("3 numbers, of which ")
        assert said[1].endswith("Redundant directions: 1, so 2 are free; the numbers in them say nothing one by one.")
    else:
        assert "冗余方向 1 个，因此自由的为 2 个" in said[1]
